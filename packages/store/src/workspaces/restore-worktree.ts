import type { SnapshotRecord } from './snapshot-record.ts';
import { engineWords, requirePayload } from './take-snapshot.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export interface RestoreRequest {
  readonly worktree: string;
  readonly target: SnapshotRecord;
  /** Only these paths; none: all that the snapshot holds. */
  readonly paths: readonly string[];
  /** Do not keep unsaved changes. */
  readonly discard: boolean;
  /** On the disk when it is done. */
  readonly sync?: boolean;
}

export interface RestoreOutcome {
  /** Keeps what no snapshot held. */
  readonly saved: SnapshotRecord | null;
  readonly written: number;
  readonly removed: number;
  readonly adjusted: number;
}

/** The caller holds the lock of the worktree, and the store's as a sharer. */
export const restoreWorktree = async (
  session: WorkspaceSession,
  { worktree, target, paths, discard, sync = false }: RestoreRequest,
): Promise<RestoreOutcome> => {
  requirePayload(session, worktree);
  const outcome = await session.request<RestoreOutcome>('restore', {
    worktree,
    snapshot: target.snapshot_id,
    only: paths,
    discard,
    sync,
    ...engineWords(session),
  });
  await session.refresh();
  return outcome;
};
