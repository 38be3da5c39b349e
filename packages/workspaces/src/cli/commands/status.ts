import { plural, printable } from '@coppice/console';
import { shortId } from '../../index.ts';
import { changeLine, countChanges } from '../change-lines.ts';
import type { JvsCommand } from '../command.ts';

export const status: JvsCommand = {
  name: 'status',
  usage: '',
  summary: 'show where the worktree is, and which changes are not in a snapshot',
  options: [],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const { state } = workspace.session;
    const worktree = state.worktrees.get(workspace.worktree);
    const head = state.snapshots.get(worktree?.head_snapshot_id ?? '') ?? null;
    const changes = await workspace.diff(head, null);
    const answer = {
      worktree: workspace.worktree,
      head_snapshot_id: head?.snapshot_id ?? null,
      latest_snapshot_id: worktree?.latest_snapshot_id ?? null,
      clean: changes.length === 0,
      total_added: countChanges(changes, 'added'),
      total_removed: countChanges(changes, 'removed'),
      total_modified: countChanges(changes, 'modified'),
      total_metadata: countChanges(changes, 'metadata'),
      changes: changes.map(({ path, change, type }) => ({ path, change, type })),
    };
    context.answer(answer, () => [
      head
        ? `Worktree ${workspace.worktree} at ${shortId(head.snapshot_id)} ${printable(head.note.split('\n')[0] ?? '')}`.trimEnd()
        : `Worktree ${workspace.worktree}, without a snapshot yet`,
      ...(head && worktree?.latest_snapshot_id && worktree.latest_snapshot_id !== head.snapshot_id
        ? [`Its latest snapshot is ${shortId(worktree.latest_snapshot_id)}.`]
        : []),
      changes.length === 0 ? 'Nothing has changed.' : `${plural(changes.length, 'change')}:`,
      ...changes.map(changeLine),
    ]);
    return 0;
  },
};
