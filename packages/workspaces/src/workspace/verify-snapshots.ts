import { existsSync, rmSync } from 'node:fs';
import { PackReader } from '../trees/pack-reader.ts';
import { TreeDifference } from '../trees/tree-difference.ts';
import { parseTreeRoot } from '../trees/tree-root.ts';
import { type FoundTree, rootHash } from './peek-worktree.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';

interface VerifyProblem {
  readonly path: string;
  readonly problem: string;
}

export interface VerifyReport {
  readonly snapshot_id: string;
  readonly ok: boolean;
  /** The record in the log is what was written when the snapshot was taken. */
  readonly record_valid: boolean;
  readonly payload_valid: boolean;
  readonly problems: readonly VerifyProblem[];
}

const verifyTree = async (session: WorkspaceSession, snapshot: SnapshotRecord): Promise<VerifyProblem[]> => {
  const { layout, program } = session;
  const tree = layout.tree(snapshot.snapshot_id);
  if (!existsSync(tree)) return [{ path: '.', problem: 'the stored directory is missing' }];
  const pack = `1${crypto.randomUUID().replaceAll('-', '').slice(-15)}`;
  const found = await program.request<FoundTree>('scan', {
    store: layout.control,
    dir: tree,
    pack,
    temporary: true,
  });
  try {
    if (rootHash(found.root) === snapshot.payload_root_hash) return [];
    using reader = new PackReader(layout.control);
    const changes = new TreeDifference(reader).between(
      parseTreeRoot(snapshot.root),
      parseTreeRoot(found.root),
    );
    const problems = [...changes].map(({ path, change }) => ({
      path,
      problem: `its stored content was ${change}`,
    }));
    return problems.length > 0
      ? problems
      : [{ path: '.', problem: 'the time of a stored directory was changed' }];
  } finally {
    rmSync(layout.temporaryPack(pack), { force: true });
  }
};

const verifyPayload = async (
  session: WorkspaceSession,
  snapshot: SnapshotRecord,
): Promise<VerifyProblem[]> => {
  const { layout, program } = session;
  if (rootHash(snapshot.root) !== snapshot.payload_root_hash) {
    return [{ path: '.', problem: 'the record names two different roots' }];
  }
  const { problems } = await program.request<{ problems: VerifyProblem[] }>('verify', {
    store: layout.control,
    root: snapshot.root,
    contents: snapshot.storage === 'objects',
  });
  if (problems.length > 0 || snapshot.storage === 'objects') return problems;
  return verifyTree(session, snapshot);
};

export interface LogProblem {
  readonly line: number;
  readonly problem: string;
  /** That the line is about. */
  readonly snapshot: string | null;
  /** The last line does not end: its writer died, and it did not happen. */
  readonly torn: boolean;
}

/** Compares every line of the log with its hash and with the line before it. */
export const checkLog = async ({ program, layout }: WorkspaceSession): Promise<readonly LogProblem[]> =>
  (await program.request<{ problems: LogProblem[] }>('check-log', { path: layout.logFile })).problems;

/** Snapshots whose stored directories do not match their hashes. Contents are not read. */
export const damagedTrees = async ({
  layout,
  program,
  state,
}: WorkspaceSession): Promise<{ snapshot_id: string; problem: string }[]> => {
  const damaged: { snapshot_id: string; problem: string }[] = [];
  for (const { snapshot_id, root } of state.snapshots.values()) {
    const { problems } = await program.request<{ problems: VerifyProblem[] }>('verify', {
      store: layout.control,
      root,
      contents: false,
    });
    for (const { path, problem } of problems) damaged.push({ snapshot_id, problem: `${path}: ${problem}` });
  }
  return damaged;
};

/** Reads everything that the snapshots hold, and their records, and compares it with the hashes. */
export const verifySnapshots = async (
  session: WorkspaceSession,
  snapshots: readonly SnapshotRecord[],
): Promise<VerifyReport[]> => {
  const broken = (await checkLog(session)).filter(({ torn }) => !torn);
  const bad = new Map(broken.map(({ snapshot, line }) => [snapshot, line]));
  const reports: VerifyReport[] = [];
  for (const snapshot of snapshots) {
    const line = bad.get(snapshot.snapshot_id);
    const recordValid = line === undefined;
    const problems = await verifyPayload(session, snapshot);
    if (!recordValid)
      problems.unshift({ path: '.', problem: `line ${line} of the log was changed after it was written` });
    reports.push({
      snapshot_id: snapshot.snapshot_id,
      ok: problems.length === 0,
      record_valid: recordValid,
      payload_valid: problems.length === (recordValid ? 0 : 1),
      problems,
    });
  }
  return reports;
};
