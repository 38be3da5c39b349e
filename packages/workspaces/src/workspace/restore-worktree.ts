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
  readonly step?: 'undo' | 'redo' | undefined;
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
  { worktree, target, paths, discard, sync = true, step }: RestoreRequest,
): Promise<RestoreOutcome> => {
  requirePayload(session, worktree);
  const outcome = await session.request<RestoreOutcome>('restore', {
    worktree,
    snapshot: target.snapshot_id,
    only: paths,
    discard,
    loose: !sync,
    ...(step === undefined ? {} : { step }),
    ...engineWords(session),
  });
  await session.refresh();
  return outcome;
};
