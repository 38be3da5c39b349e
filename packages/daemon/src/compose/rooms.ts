import { networkPolicySchema } from '@coppice/protocol';
import { Parcels, type Pool, StrayShelf } from '@coppice/store';
import { affordableConnections } from '../config/descriptors.ts';
import { EventService } from '../events/event-service.ts';
import { DoctorService } from '../host/doctor-service.ts';
import { HealthService, type Trouble } from '../host/health-service.ts';
import { MetricsService } from '../host/metrics-service.ts';
import { CommitService } from '../images/commit-service.ts';
import { ImageService } from '../images/image-service.ts';
import { RegistryService } from '../images/registry-service.ts';
import { GuestDoor } from '../inside/guest-door.ts';
import { PortService } from '../inside/port-service.ts';
import { GatewayService } from '../network/gateway-service.ts';
import { NetworkService } from '../network/network-service.ts';
import { Vault } from '../notes/vault.ts';
import { Activity } from '../sandboxes/activity.ts';
import { IdleWatch } from '../sandboxes/idle-watch.ts';
import { Lifecycle } from '../sandboxes/lifecycle.ts';
import { type Drivers, MachineStarter } from '../sandboxes/machine-starter.ts';
import { Machines } from '../sandboxes/machines.ts';
import { Pauser } from '../sandboxes/pauser.ts';
import { SandboxCreator } from '../sandboxes/sandbox-creator.ts';
import { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { SandboxNames } from '../sandboxes/sandbox-names.ts';
import { SandboxPlanner } from '../sandboxes/sandbox-plan.ts';
import { SandboxService } from '../sandboxes/sandbox-service.ts';
import { WarmPool } from '../sandboxes/warm-pool.ts';
import { Sessions } from '../sessions/sessions.ts';
import { ForkService } from '../snapshots/fork-service.ts';
import { LineageService } from '../snapshots/lineage-service.ts';
import { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import { MemorySharer } from '../snapshots/memory/memory-sharer.ts';
import { RestoreService } from '../snapshots/restore-service.ts';
import { SnapshotAllowance } from '../snapshots/snapshot-allowance.ts';
import { SnapshotService } from '../snapshots/snapshot-service.ts';
import { SnapshotSizer } from '../snapshots/snapshot-sizer.ts';
import { SnapshotTaker } from '../snapshots/snapshot-taker.ts';
import { StrayService } from '../snapshots/stray-service.ts';
import { TokenService } from '../tokens/token-service.ts';
import { ExportService } from '../transfer/export-service.ts';
import { ImportService } from '../transfer/import-service.ts';
import { ImportSpool } from '../transfer/import-spool.ts';
import { CompareService } from '../trees/compare-service.ts';
import { MergeService } from '../trees/merge-service.ts';
import { TreeAccess } from '../trees/tree-access.ts';
import { version } from '../version.ts';
import type { Kernel } from './kernel.ts';

export type Rooms = ReturnType<typeof furnishRooms>;

/** Makes every service, each after those that it needs. Where one must hear of another that is made later, that one tells it. */
export function furnishRooms(kernel: Kernel, swept: Promise<void>) {
  const { home, config, programs, log, now, ids, state, pool, disks, network, drivers, journal } = kernel;
  const startedMs = now();

  const finder = new SandboxFinder(state);
  const activity = new Activity(now);
  const tokens = new TokenService(state, ids, now);
  const images = new ImageService(kernel.imageStore, state, journal);
  const machines = new Machines();
  const starter = new MachineStarter({
    drivers,
    network,
    disks,
    imageRoot: (imageId) => images.root(imageId),
  });
  const memory = new MemoryPolicy(drivers);
  const base = { ...kernel, swept, finder, activity, tokens, machines, starter, memory };

  const sizer = new SnapshotSizer(state, disks, log, new MemorySharer(base));
  const allowance = new SnapshotAllowance({ ...base, limits: config.limits });
  const taker = new SnapshotTaker({ ...base, allowance });
  const snapshots = new SnapshotService({ ...base, taker, sizer, undosKept: config.limits.undo_snapshots });
  const trees = new TreeAccess({ ...base, taker, imageDirs: (imageId) => images.directories(imageId) });
  const compare = new CompareService(trees, pool.server);
  const merger = new MergeService({ ...base, trees, taker, sizer, snapshots, server: pool.server });

  const lifecycle = new Lifecycle({
    ...base,
    totalMemoryMb: config.limits.total_memory_mb,
    undoMerge: (record, intent) => merger.undoOffline(record, intent),
    onDestroyed: (record) => snapshots.sandboxIsGone(record),
  });
  const pauser = new Pauser({ ...base, lifecycle });
  const guests = new GuestDoor({
    ...base,
    waker: pauser,
    imageSettings: (imageId) => images.settings(imageId),
  });
  const maxConnections = affordableConnections(config.limits.forward_connections);
  const ports = new PortService({ state, journal, finder, guests, log, maxConnections });
  lifecycle.beforeDestroy((id) => ports.closeForwards(id));

  const names = new SandboxNames(state);
  const planner = new SandboxPlanner(config, starter);
  const warm = new WarmPool({
    ...base,
    size: config.warm_pool,
    names,
    shape: () => {
      const image = images.peek(config.default_image);
      return image && planner.plan({ name: 'warm', network: networkPolicySchema.parse({}) }, image);
    },
  });
  images.onChanged(() => warm.refillSoon());
  const creator = new SandboxCreator({ ...base, limits: config.limits, pool: warm });
  const sandboxes = new SandboxService({
    ...base,
    images,
    creator,
    names,
    planner,
    allowance,
    home: home.directory,
  });

  const restorer = new RestoreService({ ...base, lifecycle, taker, sizer, snapshots, allowance });
  const forks = new ForkService({ ...base, creator, taker, sizer, snapshots, names });
  const parcels = new Parcels(programs.parcel);
  const exporter = new ExportService({ ...base, images, parcels, snapshots });
  const spool = ImportSpool.open(home.importsDir);
  const importer = new ImportService({ ...base, images, parcels, spool, sizer });

  const shelf = new StrayShelf({ ...pool, disks });
  const strays = new StrayService({ ...base, shelf, images, planner, sizer });

  const health = new HealthService({
    version,
    uptimeS: () => Math.round((now() - startedMs) / 1000),
    sandboxes: () => state.sandboxes.sums().count,
    watched: [() => troublesOfPool(pool), () => troublesOfDrivers(drivers)],
  });
  const doctor = new DoctorService({
    network: () => network.probe(),
    state,
    drivers,
    disks,
    defaultDriver: config.default_driver,
    backupFile: home.backupFile,
    strays: () => strays.list(),
    unreached: (id) => machines.get(id)?.trouble,
    troubles: () => health.troubles(),
  });
  return {
    ...base,
    images,
    commits: new CommitService(trees, images, now),
    trees,
    registryLogins: new RegistryService(kernel.registries, kernel.logins),
    sizer,
    snapshots,
    lifecycle,
    pauser,
    guests,
    ports,
    warm,
    creator,
    sandboxes,
    restorer,
    forks,
    compare,
    merger,
    exporter,
    importer,
    shelf,
    strays,
    health,
    doctor,
    lineage: new LineageService(state, images),
    metrics: new MetricsService(state, journal, warm),
    notes: new Vault(kernel.vaultDir),
    sessions: new Sessions({ sandboxes, maxSandboxes: config.limits.sandboxes_per_session }),
    events: new EventService(state, journal, finder),
    networks: new NetworkService(base),
    gatewayService: new GatewayService(base),
    watch: new IdleWatch({ ...base, lifecycle, pauser }),
  };
}

function troublesOfDrivers(drivers: Drivers): Trouble[] {
  return Object.values(drivers).flatMap(({ name, trouble }) =>
    trouble === undefined
      ? []
      : [
          {
            check: `driver ${name}`,
            message: `it cannot start sandboxes now: ${trouble}`,
            fix: 'Its helper is started again by itself. If it stays away: coppice down && coppice up --detach.',
          },
        ],
  );
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
