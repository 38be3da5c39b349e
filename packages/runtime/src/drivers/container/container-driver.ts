import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { HomeCgroups } from '../../cgroups/home-cgroups.ts';
import type { SandboxCgroup } from '../../cgroups/sandbox-cgroup.ts';
import {
  type Driver,
  type DriverHealth,
  defaultMemoryMs,
  type Machine,
  type MachineSpec,
} from '../../driver.ts';
import { connectGuest, connectUnlessGivenUp } from '../../guest/connect-guest.ts';
import { type Patience, patienceOf } from '../../guest/patience.ts';
import { checkId, checkSpec } from '../../machine/check-spec.ts';
import { cpuFeatures } from '../../machine/cpu-features.ts';
import { formatMemoryTraits } from '../../machine/memory-traits.ts';
import { mountTrouble } from '../../machine/mount-trouble.ts';
import { isRunning, type ProcessIdentity } from '../../machine/process-identity.ts';
import { Processors } from '../../machine/processors.ts';
import { type Bounds, unlessGivenUp } from '../../programs/unless-given-up.ts';
import { AgentStore } from './agent-store.ts';
import { CheckpointMark } from './checkpoint-mark.ts';
import { checkMemoryMounts, findCheckpointRecord, readCheckpointRecord } from './checkpoint-record.ts';
import { ContainerMachine } from './container-machine.ts';
import { probeContainers } from './container-probe.ts';
import { sharedOptions } from './criu.ts';
import { type CriuFinding, probeCriu } from './criu-probe.ts';
import { idMapImage } from './id-map-image.ts';
import { firstIdOf, IdSlots } from './id-slots.ts';
import { type Launched, Launcher, type LaunchRequest } from './launcher.ts';
import { LauncherRecord } from './launcher-record.ts';
import { renewListener } from './lent-descriptors.ts';
import {
  completeMachineRecord,
  type MachineRecord,
  readBootId,
  readMachineRecord,
  writeMachineRecord,
} from './machine-record.ts';

export interface ContainerDriverOptions {
  /** COPPICE_HOME; sandboxes have their sockets and records in `run/<id>` below it. */
  readonly home: string;
  /** Sets what this home makes on the machine apart from that of others. */
  readonly homeKey: string;
  /** The programs coppice-launch and coppice-agent. */
  readonly programs: { readonly launch: string; readonly agent: string };
  readonly bubblewrap?: string;
  readonly standbys?: number;
  /**
   * Where agents are kept; default: `agents` in the home. Sandboxes see its path from the root of its filesystem, so one that is the
   * home's own tells them nothing of the host.
   */
  readonly agentsDir?: string;
  /** How long the agent of a sandbox may be silent while something is asked of it. */
  readonly agentAnswerMs?: number;
  /** Keeps memory; default: the one this machine has. */
  readonly criuProgram?: string;
  /** How long memory may take to be written, and to be brought back. */
  readonly memoryMs?: number;
}

const greetTimeoutMs = 30_000;
const startMs = 120_000;
/** What was given up is killed, again and again, until the launcher says that it is over. */
const killAgainMs = 20;
const killedWithinMs = 10_000;
const launchersEndWithinMs = 30_000;
const standbyPattern = /^standby-(\d+)-\d+$/;
const logTailChars = 1000;

/** Containers made by bubblewrap in a user namespace of their own, with the agent as PID 1. */
export class ContainerDriver implements Driver {
  readonly name = 'container';
  /** CRIU does with the privileges of root whatever its images say. */
  readonly takesForeignMemory = false;
  readonly needsNetns = false;
  readonly #patience: Patience;
  readonly #runRoot: string;
  readonly #options: Required<
    Omit<ContainerDriverOptions, 'criuProgram' | 'agentsDir' | 'agentAnswerMs' | 'memoryMs'>
  >;
  readonly #criuProgram: string | undefined;
  readonly #memoryMs: number;
  readonly #agents: AgentStore;
  readonly #cgroups: HomeCgroups;
  readonly #launcher: Launcher;
  readonly #launchers: LauncherRecord;
  readonly #slots: IdSlots;
  readonly #processors = new Processors();
  readonly #bootId = readBootId();
  readonly #machines = new Map<string, ContainerMachine>();
  readonly #starting = new Set<string>();
  #prepared = false;
  #criu: Promise<CriuFinding> | undefined;
  readonly #closing = new AbortController();

  constructor(options: ContainerDriverOptions) {
    this.#patience = patienceOf(options.agentAnswerMs);
    this.#options = { bubblewrap: '/usr/bin/bwrap', standbys: 2, ...options };
    this.#criuProgram = options.criuProgram;
    this.#memoryMs = options.memoryMs ?? defaultMemoryMs;
    this.#runRoot = join(options.home, 'run');
    this.#launchers = new LauncherRecord(join(options.home, 'launchers.json'));
    this.#cgroups = new HomeCgroups(`coppice-${options.homeKey}`, { shows: true });
    this.#slots = new IdSlots(options.homeKey);
    this.#agents = new AgentStore(options.agentsDir ?? join(options.home, 'agents'), options.programs.agent);
    const v1Parents = this.#cgroups.v1Parents;
    this.#launcher = new Launcher({
      program: options.programs.launch,
      agent: () => this.#agents.path(this.#agents.current),
      bubblewrap: this.#options.bubblewrap,
      v1Parents,
      standbys: this.#options.standbys,
      onStarted: (pid) => this.#launchers.add(pid),
    });
  }

  async probe(): Promise<DriverHealth> {
    const [health, criu] = await Promise.all([
      probeContainers({
        bubblewrap: this.#options.bubblewrap,
        programs: Object.values(this.#options.programs),
        cgroups: this.#cgroups.description,
      }),
      this.#probeCriu(),
    ]);
    if ('refusal' in criu) return { ...health, memoryCompatibility: null };
    const memoryCompatibility = formatMemoryTraits({
      program: 'criu',
      version: criu.version,
      architecture: process.arch,
      cpuFeatures: cpuFeatures(),
    });
    return { ...health, detail: `${health.detail}, CRIU ${criu.version}`, memoryCompatibility };
  }

  get trouble(): string | undefined {
    return this.#launcher.trouble;
  }

  async memoryRefusal(): Promise<string | undefined> {
    const criu = await this.#probeCriu();
    return 'refusal' in criu ? criu.refusal : undefined;
  }

  start(spec: MachineSpec, signal?: AbortSignal): Promise<Machine> {
    return this.#begin(
      spec,
      () => this.#agents.current,
      { signal, deadlineMs: startMs },
      (request) => this.#launcher.start(request),
    );
  }

  async restore(spec: MachineSpec, checkpointDir: string, signal?: AbortSignal): Promise<Machine> {
    const record = readCheckpointRecord(checkpointDir);
    checkMemoryMounts(record, spec.mounts);
    return this.#begin(
      spec,
      () => this.#kept(record.agent),
      { signal, deadlineMs: this.#memoryMs },
      async (request) => {
        const criu = await this.#usableCriu();
        const { name, content } = idMapImage(checkpointDir, request.firstId);
        const file = join(request.runDir, 'id-map.img');
        writeFileSync(file, content, { mode: 0o600 });
        return this.#launcher.restore({
          ...request,
          criu,
          agent: this.#agents.path(record.agent),
          imagesDir: checkpointDir,
          idMap: { name, file },
          options: sharedOptions(record),
          places: record.mounts,
        });
      },
    );
  }

  async #begin(
    spec: MachineSpec,
    agent: () => string,
    bounds: Bounds,
    launch: (request: LaunchRequest) => Promise<Launched>,
  ): Promise<Machine> {
    checkSpec(spec);
    this.#prepare();
    if (this.#machines.has(spec.id) || this.#starting.has(spec.id) || this.#findInit(spec.id) !== undefined) {
      throw new CoppiceError('wrong_state', `sandbox ${spec.id} runs already`);
    }
    this.#starting.add(spec.id);
    try {
      return await this.#start(spec, agent(), bounds, launch);
    } finally {
      this.#starting.delete(spec.id);
    }
  }

  async adopt(spec: MachineSpec, ended?: AbortSignal): Promise<Machine | undefined> {
    checkId(spec.id);
    this.#prepare();
    const known = this.#machines.get(spec.id);
    if (known !== undefined) return known;
    const init = this.#findInit(spec.id);
    if (init === undefined) {
      await this.#untilEarlierLaunchersEnd(() => this.#clear(spec.id));
      return undefined;
    }
    const mark = new CheckpointMark(this.#runDir(spec.id));
    const wasCheckpointed = await mark.isLeft(this.#memoryMs, ended);
    // An earlier daemon may have died while it held the sandbox still.
    await this.#cgroups.group(spec.id).thaw();
    if (wasCheckpointed) await renewListener(this.#launcher.program, init.pid, this.#runDir(spec.id));
    mark.remove();
    const monitor = readMachineRecord(this.#runDir(spec.id))?.monitor;
    const machine = await this.#take(spec.id, init);
    if (monitor !== undefined) this.#launcher.endMonitor(monitor, init);
    return machine;
  }

  async discard(id: string): Promise<void> {
    checkId(id);
    await this.#clear(id);
  }

  async sweep(keep: ReadonlySet<string>): Promise<string[]> {
    const removed = new Set<string>();
    await this.#untilEarlierLaunchersEnd(async () => {
      for (const id of await this.#sweepOnce(keep)) removed.add(id);
    });
    return [...removed];
  }

  /**
   * Does the work, and again for as long as the launcher of a dead daemon may still start something. It comes first too: that launcher
   * may be waiting for what the work ends.
   */
  async #untilEarlierLaunchersEnd(work: () => Promise<void>): Promise<void> {
    const endMs = performance.now() + launchersEndWithinMs;
    for (;;) {
      const isLast = !this.#launchers.earlierRuns || performance.now() > endMs;
      await work();
      if (isLast) return;
      await sleep(killAgainMs);
    }
  }

  async #sweepOnce(keep: ReadonlySet<string>): Promise<string[]> {
    const found = new Set(this.#listRunDirs());
    for (const name of this.#cgroups.list()) {
      const standby = standbyPattern.exec(name);
      if (standby === null) found.add(name);
      else if (!existsSync(`/proc/${standby[1]}`)) await this.#cgroups.group(name).remove();
    }
    const removed: string[] = [];
    const failures: unknown[] = [];
    for (const id of [...found].sort()) {
      if (keep.has(id) || this.#starting.has(id)) continue;
      try {
        // One that cannot be removed does not keep the others.
        await this.#clear(id);
        removed.push(id);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
    return removed;
  }

  forgetPrograms(checkpointDirs: readonly string[]): string[] {
    const others = this.#agents.others();
    if (others.length === 0) return [];
    const needed = new Set([
      ...this.#listRunDirs().map((id) => readMachineRecord(this.#runDir(id))?.agent),
      ...checkpointDirs.map((directory) => findCheckpointRecord(directory)?.agent),
    ]);
    const unneeded = others.filter((name) => !needed.has(name));
    for (const name of unneeded) this.#agents.remove(name);
    return unneeded;
  }

  /** Sandboxes go on without the driver. */
  async close(): Promise<void> {
    for (const machine of this.#machines.values()) machine.leave();
    this.#machines.clear();
    // A program that hangs must not outlive us.
    this.#closing.abort();
    await this.#criu?.catch(() => {});
    await this.#launcher.close();
    this.#cgroups.release();
  }

  async #start(
    spec: MachineSpec,
    agent: string,
    bounds: Bounds,
    launch: (request: LaunchRequest) => Promise<Launched>,
  ): Promise<Machine> {
    const runDir = this.#runDir(spec.id);
    const cgroup = this.#cgroups.group(spec.id);
    if (existsSync(runDir) || cgroup.directories.some((directory) => existsSync(directory)))
      await this.#clear(spec.id);
    const slot = this.#slots.take();
    const { mounts = [] } = spec;
    const watchesModes = mounts.length > 0;
    const record: MachineRecord = { driver: 'container', bootId: this.#bootId, slot, agent, watchesModes };
    try {
      mkdirSync(runDir, { recursive: true, mode: 0o700 });
      writeMachineRecord(runDir, record);
      const launching = launch({
        id: spec.id,
        runDir,
        image: spec.image,
        diskDir: spec.diskDir,
        mounts,
        hostname: spec.hostname,
        firstId: firstIdOf(slot),
        memoryBytes: spec.limits.memoryBytes,
        processors: this.#processors.choose(spec.limits.cpus),
        shownCgroups: this.#cgroups.shown,
        v2Directory: cgroup.v2Directory,
        settings: cgroup.settings(spec.limits),
      });
      const { init, monitor } = await orKilled(launching, cgroup, bounds);
      completeMachineRecord(runDir, record, { init, ...(monitor === undefined ? {} : { monitor }) });
      const machine = await this.#take(spec.id, init, bounds);
      // After the caller's own work: nobody waits for it.
      if (monitor !== undefined) setImmediate(() => this.#launcher.endMonitor(monitor, init));
      return machine;
    } catch (error) {
      const log = this.#readLog(runDir);
      // With the record the range is given back there; twice would take it from whoever has it by then.
      const recorded = readMachineRecord(runDir) !== undefined;
      await this.#clear(spec.id);
      if (!recorded) this.#slots.release(slot);
      throw mountTrouble(String(error), spec.mounts) ?? startFailure(spec.id, error, log);
    }
  }

  async #take(id: string, init: ProcessIdentity, bounds: Bounds = {}): Promise<ContainerMachine> {
    const runDir = this.#runDir(id);
    const ended = Promise.withResolvers<void>();
    // Watched from the first instant, and not one round trip later: to connect takes longer than that.
    const connect = () =>
      connectGuest(join(runDir, 'agent.sock'), { greetTimeoutMs, patience: this.#patience });
    const [guest] = await Promise.all([
      connectUnlessGivenUp(connect, bounds),
      this.#launcher.watch(init, ended.resolve),
    ]);
    const { slot, agent, watchesModes = false } = readMachineRecord(runDir) ?? {};
    const machine = new ContainerMachine({
      id,
      init,
      guest,
      connect,
      cgroup: this.#cgroups.group(id),
      launcher: this.#launcher,
      processors: this.#processors,
      runDir,
      agent: () => this.#kept(agent),
      watchesModes,
      findCriu: () => this.#usableCriu(),
      memoryMs: this.#memoryMs,
      cleanUp: async () => {
        await rm(runDir, { recursive: true, force: true });
        this.#machines.delete(id);
        if (slot !== undefined) this.#slots.release(slot);
      },
    });
    this.#machines.set(id, machine);
    ended.promise.then(() => machine.onInitExit());
    return machine;
  }

  /** Ends whatever is left of a sandbox that no machine here stands for, and forgets it. */
  async #clear(id: string): Promise<void> {
    const machine = this.#machines.get(id);
    if (machine !== undefined) return machine.stop(0);
    const slot = readMachineRecord(this.#runDir(id))?.slot;
    const cgroup = this.#cgroups.group(id);
    await cgroup.kill();
    await cgroup.remove();
    await rm(this.#runDir(id), { recursive: true, force: true });
    if (slot !== undefined) this.#slots.release(slot);
  }

  /** Asked again as long as it cannot be used: it may have been installed since. */
  async #probeCriu(): Promise<CriuFinding> {
    this.#criu ??= probeCriu(this.#criuProgram, this.#closing.signal);
    try {
      const finding = await this.#criu;
      if ('refusal' in finding) this.#criu = undefined;
      return finding;
    } catch (error) {
      this.#criu = undefined;
      throw error;
    }
  }

  /** An agent that memory can go on with. */
  #kept(name: string | undefined): string {
    if (name !== undefined && this.#agents.has(name)) return name;
    const message =
      name === undefined
        ? 'an earlier version started this sandbox, and its agent is not kept'
        : `the agent ${name}, which the memory is of, is no longer kept`;
    throw new CoppiceError('unsupported', message, {
      hint: 'Stop the sandbox and start it again; its files are whole.',
    });
  }

  async #usableCriu(): Promise<string> {
    const criu = await this.#probeCriu();
    if (!('refusal' in criu)) return criu.program;
    throw new CoppiceError('unsupported', `the memory of containers cannot be kept here: ${criu.refusal}`, {
      hint: 'Install CRIU 4 or later, or use the driver gvisor.',
    });
  }

  /** Once, and not in the constructor: a driver that is never used touches nothing. */
  #prepare(): void {
    if (this.#prepared) return;
    mkdirSync(this.#runRoot, { recursive: true, mode: 0o700 });
    for (const id of this.#listRunDirs()) {
      const record = readMachineRecord(this.#runDir(id));
      if (record !== undefined) this.#slots.keep(record.slot);
    }
    this.#cgroups.prepare();
    this.#launcher.warmUp();
    this.#prepared = true;
  }

  #findInit(id: string): ProcessIdentity | undefined {
    const record = readMachineRecord(this.#runDir(id));
    if (record?.init === undefined || record.bootId !== this.#bootId) return undefined;
    return isRunning(record.init) ? record.init : undefined;
  }

  /** Also those without a record: whoever made them died before it was written. */
  #listRunDirs(): string[] {
    if (!existsSync(this.#runRoot)) return [];
    const entries = readdirSync(this.#runRoot, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  }

  #runDir(id: string): string {
    return join(this.#runRoot, id);
  }

  #readLog(runDir: string): string {
    const file = join(runDir, 'console.log');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().slice(-logTailChars) : '';
  }
}

/**
 * What is launched, unless it is given up: then it is killed wherever it has got to. It enters its cgroups on the way, so that one blow
 * may come too soon.
 */
async function orKilled(
  launching: Promise<Launched>,
  cgroup: SandboxCgroup,
  bounds: Bounds,
): Promise<Launched> {
  let settled = false;
  const settle = () => {
    settled = true;
  };
  launching.then(settle, settle);
  try {
    return await unlessGivenUp('the start of the sandbox', launching, bounds);
  } catch (error) {
    const endMs = performance.now() + killedWithinMs;
    while (!settled && performance.now() < endMs) {
      await cgroup.kill();
      await sleep(killAgainMs);
    }
    throw error;
  }
}

function startFailure(id: string, error: unknown, log: string): CoppiceError {
  const code = error instanceof CoppiceError ? error.code : 'internal';
  const reason = error instanceof Error ? error.message : String(error);
  const said = log === '' ? '' : ` It said: ${log}`;
  return new CoppiceError(code, `sandbox ${id} did not start: ${reason}.${said}`, { cause: error });
}
