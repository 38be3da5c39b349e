import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';

/** What the log adds up to. coppice-tree adds it up (native/tree/log.c). */
export interface WorkspaceState {
  /** Oldest first. */
  readonly snapshots: ReadonlyMap<string, SnapshotRecord>;
  readonly worktrees: ReadonlyMap<string, WorktreeRecord>;
  readonly pins: ReadonlyMap<string, string>;
  /** A collection whose snapshots are gone from history, but whose space is not freed yet. */
  readonly unfinishedCollection: { readonly planId: string; readonly pid: number } | null;
}

export interface StateAnswer {
  readonly snapshots: readonly {
    /** As it was when the snapshot was taken. */
    readonly record: SnapshotRecord;
    readonly worktree_name: string;
    readonly tags: readonly string[];
  }[];
  readonly worktrees: readonly WorktreeRecord[];
  readonly pins: Readonly<Record<string, string>>;
  readonly collection: { readonly planId: string; readonly pid: number } | null;
}

export const decodeState = ({ snapshots, worktrees, pins, collection }: StateAnswer): WorkspaceState => ({
  snapshots: new Map(
    snapshots.map(({ record, worktree_name, tags }) => [
      record.snapshot_id,
      { ...record, worktree_name, tags },
    ]),
  ),
  worktrees: new Map(worktrees.map((worktree) => [worktree.name, worktree])),
  pins: new Map(Object.entries(pins)),
  unfinishedCollection: collection,
});
