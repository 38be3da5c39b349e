import type { JvsCommand } from '../command.ts';
import { answerRestored } from '../restored.ts';

export const undo: JvsCommand = {
  name: 'undo',
  usage: '',
  summary: 'take back the last restore of this worktree; once more brings it back',
  options: [],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const target = workspace.beforeRestore();
    answerRestored(context, target, await workspace.restore(target));
    return 0;
  },
};
