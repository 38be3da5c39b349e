import type { JvsCommand } from '../command.ts';
import { snapshotLine } from '../snapshot-lines.ts';

export const history: JvsCommand = {
  name: 'history',
  usage: '[--tag TAG …] [--grep TEXT] [-n COUNT] [--all]',
  summary: 'list snapshots, newest first, one on each line; * is where the worktree is',
  options: [
    { name: 'tag', kind: 'list', value: 'TAG', help: 'only those with this tag' },
    { name: 'grep', short: 'g', kind: 'value', value: 'TEXT', help: 'only those with this text in the note' },
    { name: 'limit', short: 'n', kind: 'value', value: 'COUNT', help: 'at most so many' },
    { name: 'all', kind: 'flag', help: 'of every worktree' },
  ],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const found = workspace.history({
      all: context.args.has('all'),
      tags: context.args.list('tag'),
      grep: context.args.value('grep'),
      limit: context.args.count('limit'),
    });
    const head = workspace.session.state.worktrees.get(workspace.worktree)?.head_snapshot_id;
    context.answer(found, () =>
      found.map((snapshot) => snapshotLine(snapshot, snapshot.snapshot_id === head, context.colour)),
    );
    return 0;
  },
};
