import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { copyFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { IdSource, networkPolicySchema } from '@coppice/protocol';
import { ContainerDriver, GvisorDriver, ImageStore, NftNetwork } from '@coppice/runtime';
import { createDiskStore, type DiskStore, openPool, Parcels, type Pool } from '@coppice/store';
import type { Config } from './config/config.ts';
import { affordableConnections } from './config/descriptors.ts';
import type { Home } from './config/home.ts';
import type { Programs } from './config/programs.ts';
import { openDatabase } from './db/open-database.ts';
import { State } from './db/state.ts';
import { EventService } from './events/event-service.ts';
import { DoctorService } from './host/doctor-service.ts';
import { HealthService, type Trouble } from './host/health-service.ts';
import { Housekeeper } from './host/housekeeper.ts';
import type { Log } from './host/log.ts';
import { MetricsService } from './host/metrics-service.ts';
import { ImageService } from './images/image-service.ts';
import { ExecService } from './inside/exec-service.ts';
import { FileService } from './inside/file-service.ts';
import { GuestDoor } from './inside/guest-door.ts';
import { JobService } from './inside/job-service.ts';
import { PortService } from './inside/port-service.ts';
import { TerminalService } from './inside/terminal-service.ts';
import { Journal } from './journal/journal.ts';
import { KeyedLock } from './journal/keyed-lock.ts';
import { LongWork } from './journal/long-work.ts';
import { Recovery } from './journal/recovery.ts';
import { NetworkService } from './network/network-service.ts';
import { Activity } from './sandboxes/activity.ts';
import type { Core } from './sandboxes/core.ts';
import { IdleWatch } from './sandboxes/idle-watch.ts';
import { Lifecycle } from './sandboxes/lifecycle.ts';
import { type Drivers, MachineStarter } from './sandboxes/machine-starter.ts';
import { Machines } from './sandboxes/machines.ts';
import { Pauser } from './sandboxes/pauser.ts';
import { SandboxCreator } from './sandboxes/sandbox-creator.ts';
import { SandboxFinder } from './sandboxes/sandbox-finder.ts';
import { SandboxNames } from './sandboxes/sandbox-names.ts';
import { SandboxService } from './sandboxes/sandbox-service.ts';
import { WarmPool } from './sandboxes/warm-pool.ts';
import type { Services } from './services.ts';
import { ForkService } from './snapshots/fork-service.ts';
import { LineageService } from './snapshots/lineage-service.ts';
import { MemorySharer } from './snapshots/memory/memory-sharer.ts';
import { RestoreService } from './snapshots/restore-service.ts';
import { SnapshotAllowance } from './snapshots/snapshot-allowance.ts';
import { SnapshotService } from './snapshots/snapshot-service.ts';
import { SnapshotSizer } from './snapshots/snapshot-sizer.ts';
import { SnapshotTaker } from './snapshots/snapshot-taker.ts';
import { TokenService } from './tokens/token-service.ts';
import { ExportService } from './transfer/export-service.ts';
import { ImportService } from './transfer/import-service.ts';
import { ImportSpool } from './transfer/import-spool.ts';
import { CompareService } from './trees/compare-service.ts';
import { MergeService } from './trees/merge-service.ts';
import { TreeAccess } from './trees/tree-access.ts';
import { version } from './version.ts';

export interface DaemonOptions {
  readonly home: Home;
  readonly config: Config;
  readonly programs: Programs;
  readonly log: Log;
  /** Where this process dies or waits, for the tests of that. */
  readonly faults?: (() => string | undefined) | undefined;
  /** Go back to the last good copy of the database; what it does not know is left alone. */
  readonly restoreBackup?: boolean;
}

const saveActivityMs = 1_000;
const reviewLimitsMs = 5_000;
const tendSpaceMs = 100;
const backupMs = 30_000;
const pruneEventsMs = 2_000;

/** The composition root: everything that is in the daemon, and only here by the name of its implementation. */
export class Daemon {
  readonly services: Services;
  /** Settles when recovery is done; calls are served before that, each waiting for its own sandbox at most. */
  readonly recovered: Promise<void>;
  readonly observeRequest: MetricsService['observeRequest'];
  /** What this start had to end or to mend, for whoever started it. */
  readonly notices: readonly string[];
  readonly #close: () => Promise<void>;
  readonly #purge: () => Promise<void>;

  private constructor(parts: {
    services: Services;
    recovered: Promise<void>;
    observeRequest: MetricsService['observeRequest'];
    notices: readonly string[];
    close: () => Promise<void>;
    purge: () => Promise<void>;
  }) {
    this.services = parts.services;
    this.recovered = parts.recovered;
    this.observeRequest = parts.observeRequest;
    this.notices = parts.notices;
    this.#close = parts.close;
    this.#purge = parts.purge;
  }

  static async open(options: DaemonOptions): Promise<Daemon> {
    const { home, config, programs, log } = options;
    const now = Date.now;
    const ids = new IdSource(now);
    if (options.restoreBackup) await bringBackupBack(home);
    const state = new State(openDatabase(home.databaseFile, home.backupFile), () => home.reserve.release());
    const drivers: Drivers = {
      container: new ContainerDriver({
        home: home.directory,
        homeKey: home.key,
        programs,
        agentsDir: join(home.directory, 'pool/agents'),
        ...(config.criu === null ? {} : { criuProgram: config.criu }),
      }),
      gvisor: new GvisorDriver({ home: home.directory, homeKey: home.key, programs }),
    };
    const [pool, imageStore] = await Promise.all([
      openPool({ home: home.directory, programPath: programs.pool, evict: () => endMachines(drivers) }),
      ImageStore.open({
        directory: home.imagesDir,
        newId: () => ids.next('image'),
        now: () => new Date(now()),
      }),
    ]);
    const disks = await openDisks(pool, log);
    const network = await NftNetwork.open({ homeKey: home.key, file: join(home.directory, 'network.json') });
    const notices = pool.wasReadOnly ? [noticeOfRemount(state)] : [];
    for (const notice of notices) log.warn({}, notice);

    const journal = new Journal(state, { now, faults: options.faults });
    const locks = new KeyedLock();
    const work = new LongWork();
    const finder = new SandboxFinder(state);
    const activity = new Activity(now);
    const tokens = new TokenService(state, ids, now);
    const images = new ImageService(imageStore, state, journal, () => warm.refillSoon());
    const imageRootfs = (imageId: string) => images.rootfs(imageId);
    const machines = new Machines((id, machine) =>
      lifecycle
        .lost(id, machine)
        .catch((error: unknown) => log.error({ err: error, sandbox: id }, 'the end of a sandbox was lost')),
    );
    const starter = new MachineStarter({ drivers, network, disks, imageRootfs });
    const swept = Promise.withResolvers<void>();
    swept.promise.catch(() => {});
    const core: Core = {
      state,
      journal,
      locks,
      work,
      finder,
      machines,
      starter,
      disks,
      network,
      activity,
      tokens,
      ids,
      now,
      log,
      swept: swept.promise,
    };

    const sizer = new SnapshotSizer(state, disks, log, new MemorySharer(core));
    const allowance = new SnapshotAllowance(core, config.limits);
    const taker = new SnapshotTaker(core, allowance);
    const snapshots = new SnapshotService(core, taker, sizer, config.limits.undo_snapshots);
    const lifecycle: Lifecycle = new Lifecycle({
      core,
      totalMemoryMb: config.limits.total_memory_mb,
      undoMerge: (record, intent) => merger.undoOffline(record, intent),
      closeForwards: (id) => ports.closeForwards(id),
      onDestroyed: async (record) => {
        if (record.parentSnapshotId !== null) await snapshots.prune(record.parentSnapshotId);
        await snapshots.pruneUndo(record.baseSnapshotId);
        await snapshots.pruneUndos(record.id);
        await snapshots.pruneMerged();
      },
    });
    const pauser = new Pauser(core, lifecycle);
    const guests = new GuestDoor({ finder, machines, activity, locks, waker: pauser });
    const ports: PortService = new PortService({
      state,
      journal,
      finder,
      guests,
      log,
      maxConnections: affordableConnections(config.limits.forward_connections),
    });
    const names = new SandboxNames(state);
    const warm: WarmPool = new WarmPool({
      size: config.warm_pool,
      names,
      shape: () => {
        const image = images.peek(config.default_image);
        return image && sandboxes.plan({ name: 'warm', network: networkPolicySchema.parse({}) }, image);
      },
      starter,
      disks,
      network,
      ids,
      log,
    });
    const creator = new SandboxCreator(core, config.limits, warm);
    const sandboxes: SandboxService = new SandboxService({
      core,
      config,
      images,
      creator,
      names,
      allowance,
      home: home.directory,
    });
    const trees = new TreeAccess(core, taker, imageRootfs, emptyDirectory(home));
    const compare = new CompareService(trees, pool.server);
    const merger: MergeService = new MergeService({
      core,
      trees,
      taker,
      sizer,
      snapshots,
      server: pool.server,
    });
    const restorer = new RestoreService({ core, lifecycle, taker, sizer, snapshots, allowance });
    const forks = new ForkService({ core, creator, taker, sizer, snapshots, names });
    const lineage = new LineageService(state, images);
    const parcels = new Parcels(programs.parcel);
    const exporter = new ExportService(core, images, parcels, snapshots);
    const spool = ImportSpool.open(home.importsDir);
    const importer = new ImportService({ core, images, parcels, spool, sizer });
    const metrics = new MetricsService(state, journal, warm);
    const watch = new IdleWatch(core, lifecycle, pauser);
    const startedMs = now();
    tokens.ensureAdmin(homeToken(home));

    const recovery = await new Recovery({
      core,
      drivers,
      lifecycle,
      creator,
      restorer,
      merger,
      pauser,
      undoImport: (snapshotId, imageDigest) => importer.undo(snapshotId, imageDigest),
      keepUnknown: options.restoreBackup ?? false,
      endedBecause: pool.wasReadOnly ? 'it was ended because the pool had become read-only' : undefined,
    }).begin();
    recovery.swept.then(swept.resolve, swept.reject);
    const housekeeper = new Housekeeper(log);
    // Those of now: a fork that is asked for from here on has its own, from which nothing grew yet.
    const forkSnapshots = state.snapshots.automaticWithTag('fork');
    const recovered = recovery.settled.then(async () => {
      await ports.reopen();
      for (const id of forkSnapshots) await snapshots.prune(id);
      await snapshots.pruneAllUndos();
      await snapshots.pruneMerged();
      sizer.addUncounted();
      await images.remember(config.default_image);
      warm.refillSoon();
    });
    recovered.catch((error: unknown) => log.error({ err: error }, 'recovery did not finish'));
    housekeeper.keep({
      what: 'looking for idle sandboxes',
      everyMs: saveActivityMs,
      work: () => watch.look(),
    });
    housekeeper.keep({
      what: 'keeping room for the pool and the database',
      everyMs: tendSpaceMs,
      work: async () => {
        await home.reserve.refill((file, bytes) => pool.server.call('space-reserve', file, String(bytes)));
        await pool.space.tend();
      },
    });
    housekeeper.keep({
      what: 'reviewing disk limits',
      everyMs: reviewLimitsMs,
      work: () => disks.reviewLimits(),
    });
    const events = new EventService(state, journal, finder);
    const bounds = { kept: config.limits.events_kept, days: config.limits.events_days };
    housekeeper.keep({
      what: 'removing old events',
      everyMs: pruneEventsMs,
      work: () => events.prune(bounds, now()),
    });
    housekeeper.keep({ what: 'the backup of the database', everyMs: backupMs, work: backupOf(state, home) });

    const health = new HealthService({
      version,
      uptimeS: () => Math.round((now() - startedMs) / 1000),
      sandboxes: () => state.sandboxes.sums().count,
      watched: [() => troublesOfPool(pool)],
    });

    const services: Services = {
      sandboxes: {
        find: (ref) => sandboxes.find(ref),
        peek: (ref) => sandboxes.peek(ref),
        environment: (ref) => sandboxes.environment(ref),
        create: (input, call) => sandboxes.create(input, call),
        list: (query) => sandboxes.list(query),
        get: (ref) => sandboxes.get(ref),
        update: (ref, input) => sandboxes.update(ref, input),
        start: (ref) => lifecycle.start(ref),
        stop: (ref, graceS) => lifecycle.stop(ref, graceS),
        pause: (ref, keep) => pauser.pause(ref, keep),
        resume: (ref) => pauser.resume(ref),
        destroy: (ref) => lifecycle.destroy(ref),
      },
      snapshots: {
        create: (ref, input, call) => snapshots.create(ref, input, call),
        list: (ref) => snapshots.list(ref),
        labels: (ref) => snapshots.labels(ref),
        get: (ref, sandboxRef) => snapshots.get(ref, sandboxRef),
        update: (ref, input) => snapshots.update(ref, input),
        delete: (ref, sandboxRef) => snapshots.delete(ref, sandboxRef),
        restore: (ref, input, call) => restorer.restore(ref, input, call),
        forkSnapshot: (ref, input, call) => forks.forkSnapshot(ref, input, call),
        forkSandbox: (ref, input, call) => forks.forkSandbox(ref, input, call),
        export: (ref, options) => exporter.export(ref, options),
        import: (file, input, call) => importer.import(file, input, call),
      },
      compare: {
        diff: (from, to, limit, signal) => compare.diff(from, to, limit, signal),
        diffFile: (from, to, path, signal) => compare.diffFile(from, to, path, signal),
        merge: (into, input, call) => merger.merge(into, input, call),
        lineage: () => lineage.lineage(),
      },
      exec: new ExecService(guests),
      jobs: new JobService(guests),
      terminals: new TerminalService(guests),
      files: new FileService(guests),
      network: new NetworkService(core),
      ports,
      images,
      tokens,
      events,
      doctor: new DoctorService({
        network: () => network.probe(),
        state,
        drivers,
        disks,
        defaultDriver: config.default_driver,
        backupFile: home.backupFile,
        troubles: () => health.troubles(),
      }),
      health,
      metrics,
    };

    const stop = async (): Promise<void> => {
      await work.close('close');
      await recovered.catch(() => {});
      await housekeeper.close();
      await ports.close();
      await warm.close();
      await sizer.close();
      await machines.close();
      watch.save();
      for (const driver of Object.values(drivers)) await driver.close();
      await disks.close();
    };
    return new Daemon({
      services,
      recovered,
      observeRequest: (call, status, seconds) => metrics.observeRequest(call, status, seconds),
      notices,
      close: async () => {
        await stop();
        await backupOf(state, home)().catch((error: unknown) =>
          log.warn({ err: error }, 'the backup of the database failed; the last one stays'),
        );
        state.close();
        await pool.close();
      },
      purge: async () => {
        await work.close('destroy');
        await recovered.catch(() => {});
        await housekeeper.close();
        await ports.close();
        await warm.close();
        await sizer.close();
        await machines.close();
        const nothing = new Set<string>();
        for (const driver of Object.values(drivers)) await driver.sweep(nothing);
        await network.purge();
        for (const driver of Object.values(drivers)) await driver.close();
        await disks.close();
        state.close();
        await pool.purge();
      },
    });
  }

  /** Leaves the sandboxes running; the next daemon finds them. */
  close(): Promise<void> {
    return this.#close();
  }

  /** Ends every sandbox and removes all of the home that is not a plain file; those the caller removes. */
  purge(): Promise<void> {
    return this.#purge();
  }
}

function troublesOfPool({ server, space, directory }: Pool): Trouble[] {
  const troubles: Trouble[] = [];
  if (server.trouble !== undefined)
    troubles.push({
      check: 'pool helper',
      message: server.trouble,
      fix: 'It is started again by itself. If it stays away: coppice down && coppice up --detach.',
    });
  if (space.isReadOnly)
    troubles.push({
      check: 'pool',
      message: `the pool ${directory} has become read-only: its disk was full, or gave an error`,
      fix: 'Run `coppice up`: it mounts the pool again and says which sandboxes it had to end.',
    });
  if (space.isFull)
    troubles.push({
      check: 'disk space',
      message: 'the disk of the home is nearly full: nothing new is begun, and sandboxes cannot write',
      fix: 'Delete snapshots or sandboxes, or free space on that disk; it goes on by itself then.',
    });
  return troubles;
}

async function endMachines(drivers: Drivers): Promise<void> {
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

function openDisks(pool: Pool, log: Log): Promise<DiskStore> {
  return createDiskStore({
    server: pool.server,
    engine: pool.engine,
    directory: pool.directory,
    makeRoom: async () => {
      await pool.grow();
    },
    freeBytes: () => pool.space.freeBytes(),
    onLeftover: (path, error) =>
      log.warn({ err: error, path }, 'something on the pool could not be removed yet'),
  });
}

/** The secret that CLI and SDK find: made at first start, for root's eyes only. */
function homeToken(home: Home): string {
  try {
    return readFileSync(home.tokenFile, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const secret = `cpt_${randomBytes(32).toString('base64url')}`;
  writeFileSync(home.tokenFile, `${secret}\n`, { mode: 0o600, flag: 'wx' });
  return secret;
}

function emptyDirectory(home: Home): string {
  const directory = join(home.directory, 'empty');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  return directory;
}

/** Only when something happened since the last one. */
function backupOf(state: State, home: Home): () => Promise<void> {
  let savedSeq = -1;
  return async () => {
    const seq = state.events.lastSeq();
    if (seq === savedSeq) return;
    await state.backup(home.backupFile, rename);
    savedSeq = seq;
  };
}

async function bringBackupBack(home: Home): Promise<void> {
  const damaged = `${home.databaseFile}.damaged`;
  await rename(home.databaseFile, damaged).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  for (const suffix of ['-wal', '-shm']) await rm(`${home.databaseFile}${suffix}`, { force: true });
  await copyFile(home.backupFile, home.databaseFile);
}
