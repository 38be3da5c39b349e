import { createWorkspace } from '@coppice/store/workspaces';
import type { JvsCommand } from '../command.ts';

export const init: JvsCommand = {
  name: 'init',
  usage: 'NAME [--engine ENGINE]',
  summary: 'make the directory NAME a workspace, with a first worktree NAME/main',
  options: [
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
    const [name = ''] = context.args.words;
    const { root, ...repository } = await createWorkspace({
      parent: context.directory,
      name,
      engine: context.args.value('engine'),
      preferredEngine: context.io.env.JVS_ENGINE,
      notice: context.notice,
    });
    context.answer({ ...repository, repo_root: root, warnings: context.warnings }, () => [
      `The workspace ${name} is ready (engine ${repository.engine}).`,
      `Go on with: cd ${name}/main`,
    ]);
    return 0;
  },
};
