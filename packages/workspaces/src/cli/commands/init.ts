import { realpathSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { adoptDirectory, createWorkspace } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

export const init: JvsCommand = {
  name: 'init',
  usage: 'NAME [--engine ENGINE] [--adopt]',
  summary: 'make the directory NAME a workspace, with a first worktree NAME/main',
  options: [
    {
      name: 'adopt',
      kind: 'flag',
      help: 'NAME is a directory with files in it: move them to NAME/main. `.` is the current one',
    },
    {
      name: 'engine',
      kind: 'value',
      value: 'ENGINE',
      help: 'btrfs, juicefs-clone, reflink-copy or copy; the best by default',
    },
  ],
  least: 1,
  most: 1,
  async run(context) {
    const [word = ''] = context.args.words;
    const here = realpathSync(context.directory);
    const [parent, name] = word === '.' ? [dirname(here), basename(here)] : [here, word];
    const make = context.args.has('adopt') ? adoptDirectory : createWorkspace;
    const { root, ...repository } = await make({
      parent,
      name,
      engine: context.args.value('engine'),
      preferredEngine: context.io.env.JVS_ENGINE,
      notice: context.notice,
    });
    context.answer({ ...repository, repo_root: root, warnings: context.warnings }, () => [
      `The workspace ${name} is ready (engine ${repository.engine}).`,
      word === '.' ? 'You are in its worktree now.' : `Go on with: cd ${name}/main`,
    ]);
    return 0;
  },
};
