import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { clearIntent, writeIntent } from './intent.ts';
import { killPoint } from './kill-point.ts';
import { describeSnapshot, shortId } from './resolve-reference.ts';
import { type RestoreAnswer, rootHash, type ScanAnswer } from './scan-answer.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import { clonesFirst, takeUnlessKnown } from './take-snapshot.ts';
import { readIndexBasis } from './workspace-index.ts';
import type { WorkspaceSession } from './workspace-session.ts';
import { indexHolds, payloadOf, peekWorktree } from './worktree-scan.ts';

export interface RestoreRequest {
  readonly worktree: string;
  readonly target: SnapshotRecord;
  /** Only these paths; null: all that the snapshot holds. */
  readonly paths: readonly string[] | null;
  /** Do not keep unsaved changes. */
  readonly discard: boolean;
}

export interface RestoreOutcome {
  readonly snapshot: SnapshotRecord;
  readonly saved: SnapshotRecord | null;
  readonly written: number;
  readonly removed: number;
  readonly adjusted: number;
}

/** What is not in any snapshot yet becomes one, so that a restore never loses anything. */
const saveChanges = async (
  session: WorkspaceSession,
  { worktree, target, discard }: RestoreRequest,
): Promise<{ root: string; saved: SnapshotRecord | null; drop: () => void }> => {
  const record = session.state.worktrees.get(worktree);
  const isKnown = (found: ScanAnswer): boolean => {
    const empty = found.files === 0 && found.directories === 1 && !record?.head_snapshot_id;
    const hash = rootHash(found.root);
    return empty || hash === record?.saved_root_hash || hash === target.payload_root_hash;
  };
  if (discard || clonesFirst(session)) {
    const found = await peekWorktree(session, worktree);
    if (discard || isKnown(found)) return { root: found.root, saved: null, drop: found.drop };
    found.drop();
  }
  const note = `Unsaved changes before restore to ${shortId(target.snapshot_id)}`;
  const taken = await takeUnlessKnown(session, { worktree, note, automatic: true }, isKnown);
  if (taken.record) session.notice(`unsaved changes are kept as ${describeSnapshot(taken.record)}`);
  return { root: taken.root, saved: taken.record, drop: taken.drop };
};

const complain = (session: WorkspaceSession, answer: RestoreAnswer): void => {
  if (answer.ownersRefused > 0) {
    session.notice(`the owners of ${answer.ownersRefused} entries could not be restored: that takes root`);
  }
  if (answer.attributesRefused > 0) {
    session.notice(
      `${answer.attributesRefused} extended attributes could not be restored on this filesystem or by this user`,
    );
  }
};

/**
 * What counts as saved from now on: the snapshot. Where more is there, files that were ignored and no longer are, the next
 * restore must not take that for saved. What this user or filesystem could not give back is no change of anybody's.
 */
const savedHash = (target: SnapshotRecord, paths: readonly string[] | null, answer: RestoreAnswer): string =>
  paths || answer.ownersRefused > 0 || answer.attributesRefused > 0
    ? rootHash(answer.root)
    : target.payload_root_hash;

/** Nothing differs, and the index is about this very snapshot: then only the log has something to learn. */
const isThereAlready = async (
  session: WorkspaceSession,
  request: RestoreRequest,
  from: string,
): Promise<boolean> => {
  const { worktree, target } = request;
  if (rootHash(from) !== target.payload_root_hash) return false;
  if (readIndexBasis(session.layout.index(worktree)) !== target.snapshot_id) return false;
  await session.commit({
    type: 'restore',
    data: { worktree, snapshot_id: target.snapshot_id, root_hash: target.payload_root_hash, paths: null },
  });
  return true;
};

/** The caller holds the lock of the worktree, and the store's as a sharer. */
export const restoreWorktree = async (
  session: WorkspaceSession,
  request: RestoreRequest,
): Promise<RestoreOutcome> => {
  const { layout, program } = session;
  const { worktree, target } = request;
  const payload = payloadOf(session, worktree);
  const paths = request.paths ?? target.partial_paths;
  const { root: from, saved, drop } = await saveChanges(session, request);
  if (!paths && (await isThereAlready(session, request, from))) {
    drop();
    return { snapshot: target, saved, written: 0, removed: 0, adjusted: 0 };
  }
  const operation = session.newSnapshotId();
  const pack = session.newPack();
  const staging = join(layout.temporary, `restore-${operation}`);
  const newIndex = join(layout.temporary, `${operation}.index`);
  killPoint('restore-saved');
  try {
    mkdirSync(staging, { mode: 0o700 });
    writeIntent(layout, operation, {
      operation: 'restore',
      worktree,
      snapshotId: target.snapshot_id,
      fromHash: rootHash(from),
      pack,
      paths,
    });
    killPoint('restore-intent');
    const answer = await program.request<RestoreAnswer>('restore', {
      store: layout.control,
      dir: payload,
      index: layout.index(worktree),
      newIndex: paths ? undefined : newIndex,
      basis: target.snapshot_id,
      locations: indexHolds(session, worktree),
      pack,
      temporary: true,
      staging,
      kept: layout.kept(operation),
      tree: target.storage === 'tree' ? layout.tree(target.snapshot_id) : undefined,
      from,
      to: target.root,
      only: paths ?? [],
    });
    killPoint('restore-done');
    await session.commit({
      type: 'restore',
      data: { worktree, snapshot_id: target.snapshot_id, root_hash: savedHash(target, paths, answer), paths },
    });
    killPoint('restore-committed');
    if (!paths && answer.indexChanged) renameSync(newIndex, layout.index(worktree));
    complain(session, answer);
    if (answer.movedAside > 0) {
      session.notice(
        `${answer.movedAside} ignored or just changed entries stood in the way and are now ${existsSync(layout.kept(operation)) ? `in ${layout.kept(operation)}` : `beside, with their names ending in .kept-by-restore-${operation}`}`,
      );
    }
    clearIntent(layout, operation);
    const { written, removed, adjusted } = answer;
    return { snapshot: target, saved, written, removed, adjusted };
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    if (error.details?.touched === false) {
      clearIntent(layout, operation);
      throw error;
    }
    // The intent stays: the next command looks at what is there, and finishes it.
    throw new CoppiceError(error.code, `${error.message}; part of the worktree is restored already`, {
      hint: `Mend that: then the next command finishes it.${saved ? ` Or go back with \`jvs restore ${shortId(saved.snapshot_id)}\`.` : ''}`,
      details: { touched: true },
      cause: error,
    });
  } finally {
    drop();
    rmSync(staging, { recursive: true, force: true });
    rmSync(newIndex, { force: true });
    rmSync(layout.temporaryPack(pack), { force: true });
  }
};
