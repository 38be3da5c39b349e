import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { createDiskStore, type DiskStore, openPool, type Pool } from '@coppice/disks';
import { IdSource } from '@coppice/protocol';
import { ContainerDriver, GvisorDriver, NftNetwork } from '@coppice/runtime';
import type { Config } from '../config/config.ts';
import type { Home } from '../config/home.ts';
import { gatewayProgram, type Programs } from '../config/programs.ts';
import { bringBackupBack } from '../db/backup.ts';
import { openDatabase } from '../db/open-database.ts';
import { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import { Journal } from '../journal/journal.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import { LongWork } from '../journal/long-work.ts';
import { GatewayProcess } from '../network/gateway-process.ts';
import { ConfinedDirectory } from '../notes/confined-directory.ts';
import type { Drivers } from '../sandboxes/machine-starter.ts';
import { version } from '../version.ts';
import { type Account, type OpenedImages, openImages } from './open-images.ts';

export interface DaemonOptions {
  readonly home: Home;
  readonly config: Config;
  readonly programs: Programs;
  readonly log: Log;
  readonly account: Account;
  /** Where this process dies or waits, for the tests of that. */
  readonly faults?: (() => string | undefined) | undefined;
  /** Go back to the last good copy of the database; what is newer than that is set aside. */
  readonly restoreBackup?: boolean;
}

/** What every room stands on: the database, the disks, the network and the drivers of this home. */
export interface Kernel extends DaemonOptions, OpenedImages {
  readonly now: () => number;
  readonly ids: IdSource;
  readonly state: State;
  readonly pool: Pool;
  readonly disks: DiskStore;
  readonly network: NftNetwork;
  readonly gateway: GatewayProcess;
  readonly drivers: Drivers;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly work: LongWork;
  /** What this start had to end or to mend, for whoever started it. */
  readonly notices: string[];
  /** A directory that is always empty: the changes of a tree that nobody changed. */
  readonly emptyDir: string;
  /** Where the notes are that agents share. */
  readonly vaultDir: ConfinedDirectory;
}

export async function openKernel(options: DaemonOptions): Promise<Kernel> {
  const { home, config, programs, log } = options;
  const now = Date.now;
  const ids = new IdSource(now);
  const restored = options.restoreBackup ? await bringBackupBack(home) : undefined;
  const state = new State(openDatabase(home.databaseFile, home.backupFile), () => home.reserve.release());
  const agentAnswerMs = config.limits.agent_answer_s * 1000;
  const memoryMs = config.limits.memory_s * 1000;
  const drivers: Drivers = {
    container: new ContainerDriver({
      home: home.directory,
      homeKey: home.key,
      programs,
      agentsDir: join(home.directory, 'pool/agents'),
      agentAnswerMs,
      memoryMs,
      ...criuProgram(config, programs),
    }),
    gvisor: new GvisorDriver({
      home: home.directory,
      homeKey: home.key,
      programs,
      agentAnswerMs,
      memoryMs,
      ...(config.runsc === null ? {} : { runscProgram: config.runsc }),
    }),
  };
  const gateway = new GatewayProcess({
    program: gatewayProgram,
    directory: home.gatewayDir,
    logFile: join(home.logDir, 'gateway.log'),
    id: home.gatewayId,
    keyCommand: config.gateway.key_command,
    version,
    resolvers: config.gateway.resolvers,
    authorities: config.gateway.authorities,
    askTimeoutS: config.gateway.ask_timeout_s,
    callerOf: (sandboxId) => state.gateway.callerOf(sandboxId),
    log,
  });
  const [pool, images] = await Promise.all([
    openPool({
      home: home.directory,
      programPath: programs.pool,
      engine: config.disks.engine,
      evict: () => endMachines(drivers),
    }),
    openImages({ ...options, ids, now }),
  ]);
  const notices = [
    ...(restored === undefined ? [] : [restored]),
    ...(pool.wasReadOnly ? [noticeOfRemount(state)] : []),
    ...(pool.fallback === undefined ? [] : [noticeOfFallback(pool)]),
  ];
  for (const notice of notices) log.warn({}, notice);
  const emptyDir = join(home.directory, 'empty');
  mkdirSync(emptyDir, { recursive: true, mode: 0o700 });
  return {
    ...options,
    now,
    ids,
    state,
    drivers,
    pool,
    ...images,
    disks: await openDisks(pool, log),
    gateway,
    network: await NftNetwork.open({
      homeKey: home.key,
      file: join(home.directory, 'network.json'),
      gateway,
    }),
    journal: new Journal(state, { now, faults: options.faults }),
    locks: new KeyedLock(),
    work: new LongWork(),
    notices,
    emptyDir,
    vaultDir: await ConfinedDirectory.open(home.vaultDir, 'vault'),
  };
}

/** Ends everything that runs, whoever started it. */
export async function endMachines(drivers: Drivers): Promise<void> {
  for (const driver of Object.values(drivers)) await driver.sweep(new Set());
}

function noticeOfRemount(state: State): string {
  const ended = state.sandboxes.all().filter((sandbox) => sandbox.state === 'running');
  const names = ended.map(({ name }) => name).join(', ');
  const sandboxes =
    ended.length === 0
      ? 'No sandbox was running.'
      : `These sandboxes were ended: ${names}. Start each again with \`coppice start NAME\`.`;
  return `The pool had become read-only and was mounted again. ${sandboxes}`;
}

const noticeOfFallback = ({ engine, fallback }: Pool): string =>
  `Disks are kept by the engine ${engine.name}, because btrfs cannot be had: ${fallback} Snapshots and forks take time with the number of files, and disks are not held to their size.`;

function openDisks(pool: Pool, log: Log): Promise<DiskStore> {
  return createDiskStore({
    server: pool.server,
    engine: pool.engine,
    enforceSize: pool.engine.counter !== undefined,
    directory: pool.directory,
    makeRoom: async () => {
      await pool.grow();
    },
    freeBytes: () => pool.space.freeBytes(),
    onLeftover: (path, error) =>
      log.warn({ err: error, path }, 'something on the pool could not be removed yet'),
  });
}

/** What was configured, else what set-up brought, else what the driver finds on the machine. */
function criuProgram({ criu }: Config, programs: Programs): { criuProgram?: string } {
  const program = criu ?? programs.criu;
  return program === undefined ? {} : { criuProgram: program };
}
