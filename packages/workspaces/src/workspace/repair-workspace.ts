import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { plural } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { giveToOwner } from './atomic-file.ts';
import { finishCollection } from './collect-garbage.ts';
import { probeEngines } from './engine.ts';
import { type Finding, guarded } from './finding.ts';
import { leftovers } from './leftovers.ts';
import { recoverWorkspace } from './recover.ts';
import { readRepository, rebuildRepository, writeRepository } from './repository-record.ts';
import { restoreWorktree } from './restore-worktree.ts';
import { readSettings } from './settings.ts';
import { requireSoundStore } from './sound-store.ts';
import { listRecords, lostRecords } from './stored-records.ts';
import { checkLog } from './verify-snapshots.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/** Does one thing, and says each part of it that is done. */
type Repair = (session: WorkspaceSession, done: (what: string) => void) => Promise<void>;

const isCorrupt = (read: () => unknown): boolean => {
  try {
    read();
    return false;
  } catch (error) {
    if (error instanceof CoppiceError && error.code === 'corrupt') return true;
    throw error;
  }
};

/** A name for what is set aside, which sorts by time. */
const aside = ({ layout }: WorkspaceSession, name: string): string =>
  join(layout.kept, `${new Date().toISOString().replaceAll(':', '-')}-${name}`);

const offerHere = ({ program, layout, mountsFile }: WorkspaceSession) =>
  probeEngines(program, layout.root, layout.temporary, mountsFile);

const repairSettings: Repair = async (session, done) => {
  if (!isCorrupt(() => readSettings(session.layout))) return;
  const kept = aside(session, 'config.json');
  renameSync(session.layout.settingsFile, kept);
  done(`set the damaged settings aside as ${kept}; the defaults are used`);
};

const repairRepository: Repair = async (session, done) => {
  if (!isCorrupt(() => readRepository(session.layout))) return;
  const { engines } = await offerHere(session);
  writeRepository(session.layout, rebuildRepository(session.layout, engines[0] ?? 'copy'));
  await session.refresh();
  done('wrote repository.json again');
};

/** What was lost beyond this is said; then nothing is freed, as nobody knows what it named. */
const repairLog: Repair = async (session, done) => {
  const sound =
    session.logIsReadable &&
    !(await checkLog(session)).some(({ torn }) => !torn) &&
    lostRecords(session, await listRecords(session)).length === 0;
  if (sound) return;
  const kept = aside(session, 'log.jsonl');
  const { repo_id: repoId, engine } = session.repository;
  const rebuilt = await session.request<{ kept: number; restored: number; lost: number }>('rebuild-log', {
    repoId,
    engine,
    kept,
  });
  await session.refresh();
  done(
    `rebuilt the log from ${plural(rebuilt.kept, 'undamaged line')} and ${plural(rebuilt.restored, 'record')} found in packs; the old log is ${kept}`,
  );
  if (rebuilt.lost === 0) return;
  throw new CoppiceError(
    'corrupt',
    `the log has lost at least ${plural(rebuilt.lost, 'line')}: restores, worktrees, tags or pins`,
    {
      hint: 'Look at `jvs history --all` and `jvs worktree list`. Nothing was freed; `jvs doctor --repair` frees what nothing needs.',
    },
  );
};

const finishCutOff: Repair = async (session, done) => {
  if (await finishCollection(session)) done('finished a collection that was cut off');
};

const freeLeftovers: Repair = async (session, done) => {
  const { layout, program } = session;
  const records = await requireSoundStore(session);
  for (const path of leftovers(layout, session.state, records)) {
    await program.request('remove', { path });
    rmSync(`${path}.index`, { force: true });
    done(`removed ${path}`);
  }
};

const repairWorktrees: Repair = async (session, done) => {
  const { layout } = session;
  for (const worktree of session.state.worktrees.values()) {
    const payload = layout.payload(worktree.name);
    if (existsSync(payload)) continue;
    for (const folder of [join(layout.root, 'worktrees'), dirname(payload)]) {
      if (existsSync(folder)) continue;
      mkdirSync(folder);
      giveToOwner(folder);
    }
    const mode = (0o777 & ~process.umask()).toString(8);
    await session.request('make-payload', { worktree: worktree.name, mode });
    rmSync(layout.index(worktree.name), { force: true });
    const target = session.state.snapshots.get(worktree.head_snapshot_id ?? '');
    if (target) await restoreWorktree(session, { worktree: worktree.name, target, paths: [], discard: true });
    done(`made the directory of the worktree ${worktree.name} again`);
  }
};

/** A workspace that was copied to another filesystem goes on with what that offers. */
const repairEngine: Repair = async (session, done) => {
  const { engines } = await offerHere(session);
  const { repository } = session;
  const engine = engines[0] ?? 'copy';
  if (engines.includes(repository.engine)) return;
  writeRepository(session.layout, { ...repository, engine });
  await session.refresh();
  done(`changed the engine from ${repository.engine}, which this filesystem does not offer, to ${engine}`);
};

export interface RepairReport {
  readonly repaired: readonly string[];
  /** What could not be repaired. */
  readonly findings: readonly Finding[];
}

/** Mends what can be mended. What fails is a finding; what depends on it is left alone. */
export const repairWorkspace = async (session: WorkspaceSession): Promise<RepairReport> => {
  const repaired: string[] = [];
  const findings: Finding[] = [];
  const run = async (repairs: readonly Repair[]): Promise<boolean> => {
    for (const repair of repairs) {
      const failed = await guarded('repair', async () => {
        await session.withStore(false, () => repair(session, (what) => repaired.push(what)));
        return [];
      });
      findings.push(...failed);
    }
    return findings.length === 0;
  };
  await run([repairSettings, repairRepository, repairLog]);
  const sound = findings.length === 0;
  if (session.logIsReadable) {
    findings.push(
      ...(await guarded('intent', async () => {
        await recoverWorkspace(session);
        return [];
      })),
    );
    await run([...(sound ? [finishCutOff, freeLeftovers] : []), repairWorktrees, repairEngine]);
    await guarded('repair', async () => {
      for (const what of repaired) await session.commit({ type: 'repair', data: { what } });
      return [];
    });
  }
  return { repaired, findings };
};
