import { realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { destroyWorkspace } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

export const destroy: JvsCommand = {
  name: 'destroy',
  usage: 'DIR --force',
  summary: 'remove a workspace for good: all worktrees and all snapshots',
  options: [{ name: 'force', short: 'f', kind: 'flag', help: 'confirm that all of it goes' }],
  least: 1,
  most: 1,
  async run(context) {
    const directory = realpathSync(resolve(context.directory, context.args.words[0] ?? ''));
    if (!context.args.has('force')) {
      throw new CoppiceError('invalid_argument', `this removes every worktree and snapshot of ${directory}`, {
        hint: `Nothing was removed. If you mean it: jvs destroy ${context.args.words[0]} --force`,
      });
    }
    const { root, left } = await destroyWorkspace(directory);
    context.answer({ destroyed: root, left }, () => [
      `The workspace ${root} is gone${left.length > 0 ? `; what was beside it stays: ${left.join(', ')}` : ''}.`,
    ]);
    return 0;
  },
};
