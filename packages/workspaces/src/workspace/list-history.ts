import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceState } from './workspace-state.ts';

export interface HistoryQuery {
  readonly worktree: string;
  /** Of every worktree. */
  readonly all: boolean;
  readonly tags: readonly string[];
  readonly grep: string | undefined;
  readonly limit: number | undefined;
  /** In milliseconds since 1970. */
  readonly since?: number | undefined;
  /** Leave out what restores kept by themselves. */
  readonly noAutomatic?: boolean;
}

/** Newest first: what was taken in a worktree, and what it grew from, whatever it is restored to now. */
export const listHistory = (state: WorkspaceState, query: HistoryQuery): SnapshotRecord[] => {
  const own = new Set<string>();
  const addLine = (id: string | null | undefined): void => {
    for (let at = id; at && !own.has(at); at = state.snapshots.get(at)?.parent_id) own.add(at);
  };
  const worktree = state.worktrees.get(query.worktree);
  addLine(worktree?.head_snapshot_id);
  addLine(worktree?.base_snapshot_id);
  const found = [...state.snapshots.values()].filter(
    (snapshot) =>
      (query.all || snapshot.worktree_name === query.worktree || own.has(snapshot.snapshot_id)) &&
      (query.since === undefined || Date.parse(snapshot.created_at) >= query.since) &&
      !(query.noAutomatic && snapshot.automatic) &&
      query.tags.every((tag) => snapshot.tags.includes(tag)) &&
      (query.grep === undefined || snapshot.note.includes(query.grep)),
  );
  found.reverse();
  return query.limit === undefined ? found : found.slice(0, query.limit);
};
