import { AgentTemplates } from '@coppice/agents';
import { Parcels, type Pool, StrayShelf } from '@coppice/disks';
import { CoppiceError, mergeSchema, networkPolicySchema, type TellRun } from '@coppice/protocol';
import { BranchSandbox } from '../branches/branch-sandbox.ts';
import { BranchService } from '../branches/branch-service.ts';
import { affordableConnections } from '../config/descriptors.ts';
import { EventService } from '../events/event-service.ts';
import { ForgeService } from '../forge/forge-service.ts';
import { RulesFile } from '../guardian/guardian-file.ts';
import { Guardian } from '../guardian/guardian-service.ts';
import { Judge } from '../guardian/judge.ts';
import { RunWatch } from '../health/run-watch.ts';
import { DoctorService } from '../host/doctor-service.ts';
import { HealthService, type Trouble } from '../host/health-service.ts';
import { MetricsService } from '../host/metrics-service.ts';
import { WebhookSender } from '../host/webhook-sender.ts';
import { CommitService } from '../images/commit-service.ts';
import { ImageService } from '../images/image-service.ts';
import { RegistryService } from '../images/registry-service.ts';
import { ExecService } from '../inside/exec-service.ts';
import { FileService } from '../inside/file-service.ts';
import { GuestDoor } from '../inside/guest-door.ts';
import { JobService } from '../inside/job-service.ts';
import { PortService } from '../inside/port-service.ts';
import { BudgetKeeper } from '../network/budget-keeper.ts';
import { GatewayFeed } from '../network/gateway-feed.ts';
import { GatewayForges } from '../network/gateway-forges.ts';
import { GatewayService } from '../network/gateway-service.ts';
import { NetworkService } from '../network/network-service.ts';
import { SandboxTrust } from '../network/sandbox-trust.ts';
import { Vault } from '../notes/vault.ts';
import { GatewayEvidence } from '../runs/gateway-evidence.ts';
import { Inbox } from '../runs/inbox.ts';
import { InsideDoor } from '../runs/inside-door.ts';
import { InsideService } from '../runs/inside-service.ts';
import { Intake } from '../runs/intake.ts';
import { RaceService } from '../runs/race-service.ts';
import { RunLog } from '../runs/run-log.ts';
import { RunService } from '../runs/run-service.ts';
import { RunSetup } from '../runs/run-setup.ts';
import { RunWebhooks } from '../runs/run-webhooks.ts';
import { Steps } from '../runs/steps.ts';
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
import { ownerOf, Sessions } from '../sessions/sessions.ts';
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
import { PageSessions } from '../tokens/page-sessions.ts';
import { Quotas } from '../tokens/quotas.ts';
import { TokenService } from '../tokens/token-service.ts';
import { ExportService } from '../transfer/export-service.ts';
import { ImportService } from '../transfer/import-service.ts';
import { ImportSpool } from '../transfer/import-spool.ts';
import { CompareService } from '../trees/compare-service.ts';
import { MergeService } from '../trees/merge-service.ts';
import { MergedTrees } from '../trees/repositories/merged-trees.ts';
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
  const quotas = new Quotas(state, (owner) => tokens.quotaOf(owner));
  const machines = new Machines();
  const starter = new MachineStarter({
    drivers,
    network,
    disks,
    imageRoot: (imageId) => images.root(imageId),
  });
  const memory = new MemoryPolicy(drivers, disks);
  const base = { ...kernel, swept, finder, activity, tokens, quotas, machines, starter, memory };

  const sizer = new SnapshotSizer(state, disks, log, new MemorySharer(base));
  const allowance = new SnapshotAllowance({ ...base, limits: config.limits });
  const taker = new SnapshotTaker({ ...base, allowance });
  const snapshots = new SnapshotService({ ...base, taker, sizer, undosKept: config.limits.undo_snapshots });
  const trees = new TreeAccess({ ...base, taker, imageDirs: (imageId) => images.directories(imageId) });
  const compare = new CompareService(trees, pool.server);
  const { server } = pool;
  const mergedTrees = new MergedTrees({ ...base, trees, server });
  const merger = new MergeService({ ...base, trees, taker, sizer, snapshots, server, mergedTrees });

  const lifecycle = new Lifecycle({
    ...base,
    totalMemoryMb: config.limits.total_memory_mb,
    stopSignal: (imageId) => images.stopSignal(imageId),
    undoMerge: (record, intent) => merger.undoOffline(record, intent),
    onDestroyed: (record) => snapshots.sandboxIsGone(record),
  });
  const pauser = new Pauser({ ...base, lifecycle });
  const feed = new GatewayFeed(base);
  const gatewayService = new GatewayService({ ...base, feed });
  const guests = new GuestDoor({
    ...base,
    waker: pauser,
    imageSettings: (imageId) => images.settings(imageId),
    trust: new SandboxTrust(gatewayService, log),
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
  const forks = new ForkService({
    ...base,
    creator,
    taker,
    sizer,
    snapshots,
    names,
    destroy: (id) => lifecycle.destroy(id),
  });
  const parcels = new Parcels(programs.parcel);
  const exporter = new ExportService({ ...base, images, parcels, snapshots });
  const spool = ImportSpool.open(home.importsDir);
  const importer = new ImportService({ ...base, images, parcels, spool, sizer });

  const shelf = new StrayShelf({ ...pool, disks });
  const strays = new StrayService({ ...base, shelf, images, planner, sizer });

  const exec = new ExecService(guests);
  const runLog = new RunLog({ ...kernel, mostBytes: config.limits.run_record_mb * 2 ** 20 });
  const inbox = new Inbox({ ...kernel, log: runLog });
  const templates = new AgentTemplates(home.agentsDir);
  const setup = new RunSetup({
    ...base,
    templates,
    log: runLog,
    guests,
    exec,
    sandboxes,
    start: (id) => lifecycle.start(id),
    grow: async (snapshotId, input, signal) => {
      const { forks: grown, failures } = await forks.forkSnapshot(
        snapshotId,
        { ...input, count: 1 },
        { signal, by: 'admin' },
      );
      if (grown[0] === undefined)
        throw new CoppiceError('internal', failures[0]?.message ?? 'nothing grew from the step');
      return grown[0].id;
    },
  });
  const steps = new Steps({
    ...kernel,
    log: runLog,
    logger: log,
    snapshots,
    assertKeepsMemory: (id) =>
      memory.assertKeeps(finder.get(id), 'Use the driver gvisor, or leave step_memory out.'),
  });
  const runs = new RunService({
    ...base,
    templates,
    log: runLog,
    logger: log,
    inbox,
    intake: new Intake(),
    setup,
    steps,
    guests,
    restore: (id, snapshot, signal) =>
      restorer.restore(id, { snapshot, discard: true }, { by: 'admin', signal }),
    diff: (from, to) => compare.diff(from, to, { limit: 10_000 }),
    sandboxId: (ref) => finder.get(ref).id,
    pauseSandbox: (id) => pauser.pause(id, 'memory'),
    resumeSandbox: (id) => pauser.resume(id),
    destroySandbox: (id) => lifecycle.destroy(id),
    gatewayHeard: (signal) => feed.caughtUp(signal),
  });
  const webhookSender = new WebhookSender(kernel.now);
  const runWebhooks = new RunWebhooks({
    ...kernel,
    log: runLog,
    logger: log,
    sender: webhookSender,
    find: (ref) => runs.find(ref),
  });
  const races = new RaceService({
    ...base,
    log: runLog,
    logger: log,
    runs,
    exec: (id, input, signal) => exec.run(id, input, signal),
    merge: (into, from, signal) =>
      merger.merge(into, mergeSchema.parse({ from, prefer: 'theirs' }), { signal }),
  });
  const evidence = new GatewayEvidence({ ...kernel, log: runLog, inbox, onSettled: (id) => runs.lookAt(id) });
  feed.onCall((event) => evidence.hear(event));

  const insideDoor = new InsideDoor({
    state,
    log: runLog,
    logger: log,
    guestOf: (id) => machines.get(id)?.guest,
  });
  runs.beforeStarted((_run, sandboxId, signal) => insideDoor.prepare(sandboxId, signal));
  // From here on the gateway knows whose calls to models these are.
  runs.beforeStarted(async ({ id: run, spec: { agent, project } }, sandboxId) => {
    await gatewayService.setCaller(sandboxId, { run, agent, ...(project === undefined ? {} : { project }) });
  });

  const maxPushBytes = config.limits.forge_push_mb * 2 ** 20;
  const maxRepositoryBytes = config.limits.forge_repository_mb * 2 ** 20;
  const forge = new ForgeService({
    ...base,
    directory: home.forgeDir,
    maxPushBytes,
    maxRepositoryBytes,
    gateway: new GatewayForges(kernel.gateway, network),
  });
  const branches = new BranchService({
    ...base,
    forge,
    sandbox: new BranchSandbox({
      exec,
      files: new FileService(guests),
      sandboxes,
      directory: home.forgeDir,
      maxBytes: maxPushBytes,
      maxRepositoryBytes,
    }),
    destroySandbox: (id) => lifecycle.destroy(id),
    startRun: (spec) => runs.start(spec),
  });
  runs.beforeCompleted((run) => branches.afterRun(run.spec.labels));

  const judge = new Judge({
    trajectory: (run, count) => runLog.latest(run, count),
  });
  /** A run is paused only where that loses nothing of it. */
  const watchedRuns = {
    find: (ref: string) => runs.find(ref),
    tell: (ref: string, input: TellRun) => runs.tell(ref, input),
    withdraw: (ref: string, messageId: string) => runs.withdraw(ref, messageId),
    interrupt: (ref: string, reason: string) => runs.interrupt(ref, reason),
    pause: async (ref: string, reason: string) => {
      const { sandboxId } = runs.find(ref);
      if (sandboxId !== null)
        await memory.assertKeeps(finder.get(sandboxId), 'Stop it instead, or use the driver gvisor.');
      return runs.pause(ref, reason);
    },
    resume: (ref: string, reason: string) => runs.resume(ref, reason),
    stop: (ref: string, reason: string) => runs.stop(ref, reason),
    rewind: (ref: string, input: { to: number; message?: string | undefined }) => runs.rewind(ref, input),
    takeStep: (ref: string, title: string) => runs.takeStep(ref, title),
  };
  const guardian = new Guardian({
    ...base,
    log: runLog,
    logger: log,
    runs: watchedRuns,
    judge,
    file: new RulesFile(home.guardianFile),
  });
  const networks = new NetworkService(base);
  const { run_health: watched } = config;
  const runWatch = new RunWatch({
    ...base,
    log: runLog,
    logger: log,
    runs: watchedRuns,
    limits: {
      intervalMs: watched.interval_s * 1000,
      degradedAfter: watched.degraded_after,
      failedAfter: watched.failed_after,
      stuckMs: watched.stuck_s * 1000,
      graceMs: watched.grace_s * 1000,
      cooldownMs: watched.cooldown_s * 1000,
      perHour: watched.restarts_per_hour,
    },
    isAlive: async (sandboxId, jobId) => (await new JobService(guests).get(sandboxId, jobId)).running,
    network: {
      policy: (id) => finder.get(id).network,
      patch: (id, input) => networks.patch(id, input),
    },
    snapshots: {
      create: (ref, input, options) => snapshots.create(ref, input, options),
      export: (ref, options) => exporter.export(ref, { ...options, have: [] }),
    },
    directory: home.evidenceDir,
  });

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
    loss: (snapshot) => memory.loss(snapshot),
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
    exec,
    runs,
    runLog,
    races,
    insideDoor,
    inside: new InsideService({
      ...kernel,
      log: runLog,
      inbox,
      onToolResult: (id, tool) => runs.toolUsed(id, tool),
    }),
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
    pageSessions: new PageSessions({ state, tokens, now }),
    lineage: new LineageService(state, images),
    metrics: new MetricsService(state, journal, warm),
    notes: new Vault(kernel.vaultDir),
    sessions: new Sessions({
      sandboxes,
      maxSandboxes: config.limits.sandboxes_per_session,
      lifetimeS: config.limits.agent_lifetime_s,
    }),
    forge,
    branches,
    events: new EventService(state, journal, finder),
    networks,
    judge,
    guardian,
    runWatch,
    runWebhooks,
    webhookSender,
    feed,
    budgetKeeper: new BudgetKeeper({ ...base, feed, lifecycle, pauser }),
    gatewayService,
    watch: new IdleWatch({
      ...base,
      lifecycle,
      pauser,
      onExpired: async (record) => {
        if (ownerOf(record) !== null) await snapshots.deleteOf(record.id);
      },
    }),
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
