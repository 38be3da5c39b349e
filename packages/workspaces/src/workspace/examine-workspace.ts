import { existsSync } from 'node:fs';
import { probeEngines } from './engine.ts';
import { type Finding, guarded } from './finding.ts';
import { listIntents } from './intent.ts';
import { leftovers } from './leftovers.ts';
import { repairWorkspace } from './repair-workspace.ts';
import { readRepository } from './repository-record.ts';
import { readSettings } from './settings.ts';
import { listRecords, lostRecords } from './stored-records.ts';
import { checkLog, damagedTrees, verifySnapshots } from './verify-snapshots.ts';
import type { WorkspaceSession } from './workspace-session.ts';

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

type Look = (session: WorkspaceSession) => Promise<readonly Finding[]>;

const checkRepository: Look = async ({ layout }) => {
  readRepository(layout);
  return [];
};

const checkSettings: Look = async ({ layout }) => {
  readSettings(layout);
  return [];
};

const checkLines: Look = async (session) =>
  (await checkLog(session)).map(({ line, problem, torn }) => ({
    severity: torn ? 'info' : 'error',
    category: 'log',
    description: line === 0 ? `the log ${problem}` : `line ${line} of the log ${problem}`,
    fix: torn
      ? 'Its command was killed while it wrote that line, which counts for nothing. The next command removes it.'
      : 'Run `jvs doctor --repair`: it rebuilds the log from its other lines and from the packs.',
  }));

/** Nobody is at work while the packs and the log are compared. */
const checkLost: Look = async (session) => {
  if (lostRecords(session, await listRecords(session)).length === 0) return [];
  return session.withStore(false, async () =>
    lostRecords(session, await listRecords(session)).map(({ snapshot_id: id }) => ({
      severity: 'error',
      category: 'history',
      description: `the snapshot ${id} is stored, and the log does not name it`,
      fix: 'Run `jvs doctor --repair`: it adds the snapshot to the log again.',
    })),
  );
};

const checkHistory: Look = async ({ state, layout }) => {
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

const checkIntents: Look = async ({ layout, state }) => {
  const findings: Finding[] = listIntents(layout).map((intent) => ({
    severity: 'warning',
    category: 'intent',
    description: `a ${intent.operation} on the worktree ${intent.worktree} is at work, or was cut off`,
    fix: 'Wait for it; if none runs, the next command finishes or undoes it.',
  }));
  if (state.unfinishedCollection) {
    findings.push({
      severity: 'warning',
      category: 'intent',
      description: 'a collection was cut off before it had freed everything',
      fix: 'Run `jvs gc run`: it goes on where it stopped.',
    });
  }
  return findings;
};

const checkTrees: Look = async (session) =>
  (await damagedTrees(session)).map(({ snapshot_id: id, problem }) => ({
    severity: 'error',
    category: 'payload',
    description: `snapshot ${id}: ${problem}`,
    fix: 'Put the file back from a backup of the workspace, or go on from a snapshot that verifies.',
  }));

const checkLeftovers: Look = async (session) =>
  leftovers(session.layout, session.state, await listRecords(session)).map((path) => ({
    severity: 'info',
    category: 'leftover',
    description: `nothing needs ${path}`,
    fix: 'Run `jvs doctor --repair` to free it.',
  }));

const checkPayloads: Look = async (session) =>
  (await verifySnapshots(session, [...session.state.snapshots.values()])).flatMap((report) =>
    report.problems.map(({ path, problem }) => ({
      severity: 'error' as const,
      category: 'payload' as const,
      description: `snapshot ${report.snapshot_id}: ${path}: ${problem}`,
      fix: 'Put the file back from a backup of the workspace, or go on from a snapshot that verifies.',
    })),
  );

const checkEngine = ({ repository }: WorkspaceSession, possible: readonly string[]): Finding[] => {
  const { engine, requested_engine: requested } = repository;
  const findings: Finding[] = [];
  if (possible.length > 0 && !possible.includes(engine)) {
    findings.push({
      severity: 'warning',
      category: 'engine',
      description: `the workspace was made for the engine ${engine}, which this filesystem does not offer`,
      fix: 'Run `jvs doctor --repair`: it changes the engine. Until then every snapshot says what it uses instead.',
    });
  }
  if (requested) {
    findings.push({
      severity: 'info',
      category: 'engine',
      description: `${requested} was asked for, and ${engine} is used: it could not be had when the workspace was made`,
      fix: `Make a workspace on a filesystem that offers ${requested}.`,
    });
  }
  return findings;
};

const probe = async (session: WorkspaceSession) => {
  try {
    return await probeEngines(
      session.program,
      session.layout.root,
      session.layout.temporary,
      session.mountsFile,
    );
  } catch {
    // Why nothing can be written here is for the other looks to say.
    return { filesystem: 'unknown', engines: [] };
  }
};

/** Is everything in order? Errors make it unhealthy; the exit code says so too. Whatever is damaged, there is an answer. */
export const examineWorkspace = async (
  session: WorkspaceSession,
  options: ExamineOptions,
): Promise<Examination> => {
  const { repaired, findings: failed } = options.repair
    ? await repairWorkspace(session)
    : { repaired: [], findings: [] };
  const findings: Finding[] = [...failed];
  const look = async (category: Finding['category'], work: Look): Promise<readonly Finding[]> => {
    const found = await guarded(category, () => work(session));
    findings.push(...found);
    return found;
  };
  const errorsIn = (found: readonly Finding[]): boolean => found.some(({ severity }) => severity === 'error');
  const repositoryBroken = errorsIn(await look('repository', checkRepository));
  await look('settings', checkSettings);
  const logBroken = errorsIn(await look('log', checkLines));
  const { filesystem, engines } = await probe(session);
  let engine = 'unknown';
  if (!repositoryBroken) {
    engine = session.repository.engine;
    findings.push(...checkEngine(session, engines));
  }
  if (session.logIsReadable) {
    const lost = errorsIn(await look('history', checkLost));
    await look('history', checkHistory);
    await look('intent', checkIntents);
    const damaged = errorsIn(await look('payload', options.strict ? checkPayloads : checkTrees));
    // What a damaged log or tree no longer names is no leftover.
    if (!logBroken && !lost && !damaged) await look('leftover', checkLeftovers);
  }
  return {
    healthy: !errorsIn(findings),
    engine,
    filesystem,
    possible_engines: engines,
    findings,
    repaired,
  };
};
