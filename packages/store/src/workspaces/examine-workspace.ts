import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { finishCollection } from './collect-garbage.ts';
import { makeSubvolume } from './create-workspace.ts';
import { probeEngines } from './engine.ts';
import { listIntents } from './intent.ts';
import { recoverWorkspace } from './recover.ts';
import { restoreWorktree } from './restore-worktree.ts';
import { NeededObjects, storedBlobs, storedPacks, storedTrees } from './stored-objects.ts';
import { checkLog, verifySnapshots } from './verify-snapshots.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export interface Finding {
  readonly severity: 'error' | 'warning' | 'info';
  readonly category: 'log' | 'payload' | 'history' | 'intent' | 'leftover' | 'worktree' | 'engine';
  readonly description: string;
  readonly fix: string;
}

export interface Examination {
  readonly healthy: boolean;
  readonly engine: string;
  readonly filesystem: string;
  readonly possible_engines: readonly string[];
  readonly findings: readonly Finding[];
  readonly repaired: readonly string[];
}

export interface ExamineOptions {
  /** Read and hash everything. */
  readonly strict: boolean;
  readonly repair: boolean;
}

const logFindings = async (session: WorkspaceSession): Promise<Finding[]> =>
  (await checkLog(session)).map(({ line, problem }) => ({
    severity: 'error',
    category: 'log',
    description: `line ${line} of the log ${problem}`,
    fix: 'Put log.jsonl back from a backup; nothing else can tell what it said.',
  }));

const checkHistory = (session: WorkspaceSession): Finding[] => {
  const { state, layout } = session;
  const findings: Finding[] = [];
  for (const worktree of state.worktrees.values()) {
    if (!existsSync(layout.payload(worktree.name))) {
      findings.push({
        severity: 'error',
        category: 'worktree',
        description: `the directory of the worktree ${worktree.name} is gone`,
        fix: 'Run `jvs doctor --repair`: it makes the directory again from the last snapshot.',
      });
    }
    if (worktree.head_snapshot_id && !state.snapshots.has(worktree.head_snapshot_id)) {
      findings.push({
        severity: 'error',
        category: 'history',
        description: `the head of the worktree ${worktree.name} is not in the history`,
        fix: 'Restore the worktree to a snapshot that `jvs history --all` shows.',
      });
    }
  }
  return findings;
};

const checkIntents = (session: WorkspaceSession): Finding[] => {
  const findings: Finding[] = listIntents(session.layout).map((intent) => ({
    severity: 'warning',
    category: 'intent',
    description: `a ${intent.operation} on the worktree ${intent.worktree} is at work, or was cut off`,
    fix: 'Wait for it; if none runs, the next command finishes or undoes it.',
  }));
  if (session.state.unfinishedCollection) {
    findings.push({
      severity: 'warning',
      category: 'intent',
      description: 'a collection was cut off before it had freed everything',
      fix: 'Run `jvs gc run`: it goes on where it stopped.',
    });
  }
  return findings;
};

const leftovers = (session: WorkspaceSession): string[] => {
  const { layout, state } = session;
  // What belongs to a command that is at work is not a leftover.
  if (listIntents(layout).length > 0) return [];
  const found = readdirSync(layout.temporary).map((name) => join(layout.temporary, name));
  const needed = new NeededObjects(layout, state.snapshots.values());
  const { packs } = needed;
  for (const pack of storedPacks(layout)) if (!packs.has(pack.name)) found.push(pack.path);
  for (const blob of storedBlobs(layout)) if (!needed.blobs.has(blob.name)) found.push(blob.path);
  for (const tree of storedTrees(layout)) if (!needed.trees.has(tree)) found.push(layout.tree(tree));
  return found;
};

const checkLeftovers = (session: WorkspaceSession): Finding[] => {
  try {
    return leftovers(session).map((path) => ({
      severity: 'info',
      category: 'leftover',
      description: `nothing needs ${path}`,
      fix: 'Run `jvs doctor --repair` to free it.',
    }));
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    return [
      { severity: 'error', category: 'payload', description: error.message, fix: 'Run `jvs verify --all`.' },
    ];
  }
};

const checkPayloads = async (session: WorkspaceSession): Promise<Finding[]> =>
  (await verifySnapshots(session, [...session.state.snapshots.values()])).flatMap((report) =>
    report.problems.map(({ path, problem }) => ({
      severity: 'error' as const,
      category: 'payload' as const,
      description: `snapshot ${report.snapshot_id}: ${path}: ${problem}`,
      fix: 'Put the file back from a backup of the workspace, or go on from a snapshot that verifies.',
    })),
  );

const repair = async (session: WorkspaceSession): Promise<string[]> => {
  const { layout, program } = session;
  const done: string[] = [];
  await recoverWorkspace(session);
  await session.lock('store');
  try {
    await session.refresh();
    if (await finishCollection(session)) done.push('finished a collection that was cut off');
    for (const path of leftovers(session)) {
      await program.request('remove', { path });
      rmSync(`${path}.index`, { force: true });
      done.push(`removed ${path}`);
    }
    for (const worktree of session.state.worktrees.values()) {
      const payload = layout.payload(worktree.name);
      if (existsSync(payload)) continue;
      mkdirSync(dirname(payload), { recursive: true });
      if (session.repository.engine === 'btrfs') await makeSubvolume(program, payload);
      else mkdirSync(payload);
      rmSync(layout.index(worktree.name), { force: true });
      const target = session.state.snapshots.get(worktree.head_snapshot_id ?? '');
      if (target)
        await restoreWorktree(session, { worktree: worktree.name, target, paths: [], discard: true });
      done.push(`made the directory of the worktree ${worktree.name} again`);
    }
    for (const what of done) await session.commit({ type: 'repair', data: { what } });
  } finally {
    await session.unlock('store');
  }
  return done;
};

/** Without the log nothing can be said about the rest. */
const unreadable = async (session: WorkspaceSession): Promise<Examination> => ({
  healthy: false,
  engine: session.repository.engine,
  filesystem: 'unknown',
  possible_engines: [],
  findings: await logFindings(session),
  repaired: [],
});

/** Is everything in order? Errors make it unhealthy; the exit code says so too. */
export const examineWorkspace = async (
  session: WorkspaceSession,
  options: ExamineOptions,
): Promise<Examination> => {
  if (!session.logIsReadable) return unreadable(session);
  const broken = options.strict ? await logFindings(session) : [];
  const repaired = options.repair ? await repair(session) : [];
  const { filesystem, engines } = await probeEngines(
    session.program,
    session.layout.root,
    session.layout.temporary,
    session.mountsFile,
  );
  const findings = [
    ...broken,
    ...checkHistory(session),
    ...checkIntents(session),
    ...checkLeftovers(session),
  ];
  const { engine, requested_engine: requested } = session.repository;
  if (requested) {
    findings.push({
      severity: 'info',
      category: 'engine',
      description: `${requested} was asked for, and ${engine} is used: it could not be had when the workspace was made`,
      fix: `Make a workspace on a filesystem that offers ${requested}.`,
    });
  }
  if (options.strict) findings.push(...(await checkPayloads(session)));
  const healthy = !findings.some(({ severity }) => severity === 'error');
  return { healthy, engine, filesystem, possible_engines: engines, findings, repaired };
};
