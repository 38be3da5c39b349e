import { CoppiceError } from '@coppice/protocol/errors';
import { shortId, type Workspace, type WorktreeRecord } from '../../index.ts';
import type { JvsCommand } from '../command.ts';
import type { JvsContext } from '../jvs-context.ts';

const shown = (workspace: Workspace, worktree: WorktreeRecord) => ({
  ...worktree,
  path: workspace.session.layout.payload(worktree.name),
  current: worktree.name === workspace.worktree,
});

const wordsOf = (
  context: JvsContext,
  least: number,
  most: number,
  usage: string,
  ...options: readonly string[]
): readonly string[] => {
  context.args.allowOnly(`worktree ${context.args.words[0]}`, ...options);
  const words = context.args.words.slice(1);
  if (words.length >= least && words.length <= most) return words;
  throw new CoppiceError('invalid_argument', `usage: jvs worktree ${usage}`, {
    hint: 'See `jvs worktree --help`.',
  });
};

const find = (workspace: Workspace, name: string): WorktreeRecord => {
  const found = workspace.session.state.worktrees.get(name);
  if (found) return found;
  throw new CoppiceError('not_found', `there is no worktree ${JSON.stringify(name)}`, {
    hint: 'See `jvs worktree list`.',
  });
};

const made = (context: JvsContext, workspace: Workspace, worktree: WorktreeRecord): number => {
  const answer = { ...shown(workspace, worktree), warnings: context.warnings };
  const from = worktree.base_snapshot_id ? ` from ${shortId(worktree.base_snapshot_id)}` : '';
  context.answer(answer, () => [`The worktree ${worktree.name}${from} is ready: ${answer.path}`]);
  return 0;
};

const actions: Readonly<Record<string, (context: JvsContext, workspace: Workspace) => Promise<number>>> = {
  async fork(context, workspace) {
    const words = wordsOf(context, 0, 2, 'fork [REF] [NAME]');
    const { base, name } = workspace.forkArguments(...words);
    return made(context, workspace, await workspace.fork(name, base));
  },
  async create(context, workspace) {
    const [name = ''] = wordsOf(context, 1, 1, 'create NAME [--from REF]', 'from');
    const from = context.args.value('from');
    const base = from === undefined ? undefined : workspace.resolve(from);
    return made(context, workspace, await workspace.fork(name, base));
  },
  async list(context, workspace) {
    wordsOf(context, 0, 0, 'list');
    const all = [...workspace.session.state.worktrees.values()].map((worktree) => shown(workspace, worktree));
    context.answer(all, () =>
      all.map(({ name, path, current, head_snapshot_id: head }) =>
        [current ? '*' : ' ', name, head ? shortId(head) : '-', path].join(' '),
      ),
    );
    return 0;
  },
  async path(context, workspace) {
    const [name = workspace.worktree] = wordsOf(context, 0, 1, 'path [NAME]');
    const { path } = shown(workspace, find(workspace, name));
    context.answer({ name, path }, () => [path]);
    return 0;
  },
  async rename(context, workspace) {
    const [from = '', to = ''] = wordsOf(context, 2, 2, 'rename OLD NEW');
    await workspace.renameWorktree(from, to);
    context.answer(shown(workspace, find(workspace, to)), () => [
      `The worktree ${from} is called ${to} now.`,
    ]);
    return 0;
  },
  async remove(context, workspace) {
    const [name = ''] = wordsOf(context, 1, 1, 'remove NAME [--force]', 'force');
    await workspace.removeWorktree(name, context.args.has('force'));
    context.answer({ removed: name }, () => [`The worktree ${name} is gone; its snapshots stay.`]);
    return 0;
  },
};

export const worktree: JvsCommand = {
  name: 'worktree',
  usage:
    'fork [REF] [NAME] | create NAME [--from REF] | list | path [NAME] | rename OLD NEW | remove NAME [--force]',
  summary: 'work on several states side by side, each in worktrees/NAME/main',
  options: [
    { name: 'from', kind: 'value', value: 'REF', help: 'create: begin with this snapshot' },
    { name: 'force', short: 'f', kind: 'flag', help: 'remove: also when changes are not saved' },
  ],
  least: 1,
  most: 3,
  async run(context) {
    const action = actions[context.args.words[0] ?? ''];
    if (!action) {
      throw new CoppiceError('invalid_argument', `there is no \`jvs worktree ${context.args.words[0]}\``, {
        hint: `Use one of: ${Object.keys(actions).join(', ')}.`,
      });
    }
    return action(context, await context.open());
  },
};
