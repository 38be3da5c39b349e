import type { JvsCommand } from '../command.ts';
import { historyGraph } from '../history-graph.ts';
import { parseMoment } from '../moment.ts';
import { snapshotLine } from '../snapshot-lines.ts';

export const history: JvsCommand = {
  name: 'history',
  usage: '[--tag TAG …] [--grep TEXT] [--since WHEN] [-n COUNT] [--no-automatic] [--graph] [--all]',
  summary: 'list snapshots, newest first, one on each line; * is where the worktree is',
  options: [
    { name: 'tag', kind: 'list', value: 'TAG', help: 'only those with this tag' },
    { name: 'grep', short: 'g', kind: 'value', value: 'TEXT', help: 'only those with this text in the note' },
    { name: 'limit', short: 'n', kind: 'value', value: 'COUNT', help: 'show at most COUNT snapshots' },
    {
      name: 'since',
      kind: 'value',
      value: 'WHEN',
      help: 'only those taken since WHEN: 2h, 3d, 2026-03-01, 2026-03-01T09:30',
    },
    { name: 'no-automatic', kind: 'flag', help: 'leave out snapshots that restores took by themselves' },
    { name: 'graph', kind: 'flag', help: 'draw the branches' },
    { name: 'all', kind: 'flag', help: 'of every worktree' },
  ],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const since = context.args.value('since');
    const found = workspace.history({
      all: context.args.has('all'),
      tags: context.args.list('tag'),
      grep: context.args.value('grep'),
      limit: context.args.count('limit'),
      since: since === undefined ? undefined : parseMoment(since, Date.now()),
      noAutomatic: context.args.has('no-automatic'),
    });
    const head = workspace.session.state.worktrees.get(workspace.worktree)?.head_snapshot_id;
    context.answer(found, () => {
      const graph = context.args.has('graph') ? historyGraph(found) : undefined;
      return found.map((snapshot, at) => {
        const line = snapshotLine(snapshot, snapshot.snapshot_id === head, context.colour);
        return graph ? `${graph[at]} ${line}` : line;
      });
    });
    return 0;
  },
};
