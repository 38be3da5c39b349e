import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, workDirectory } from '@coppice/protocol';
import { makeCgroup, writeCgroupFile } from '../../cgroups/cgroup-files.ts';
import { HomeCgroups } from '../../cgroups/home-cgroups.ts';
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
import { isRunning, type ProcessIdentity, readStarted } from '../../machine/process-identity.ts';
import { Processors } from '../../machine/processors.ts';
import type { Bounds } from '../../programs/unless-given-up.ts';
import { GvisorMachine } from './gvisor-machine.ts';
import { type GvisorRecord, readRecord, writeRecord } from './gvisor-record.ts';
import { type PlacedMount, placed, placedForMemory } from './mounted-at.ts';
import { writeBundle } from './oci-bundle.ts';
import { overlayLayers } from './overlay-root.ts';
import { PausedMark } from './paused-mark.ts';
import { findRunsc, type Platform, probePlatform } from './platform-probe.ts';
import { Relay, type RelayOptions } from './relay.ts';
import { forgetState, Runsc } from './runsc.ts';
import { sandboxLimits } from './sandbox-limits.ts';
import { makeShimLayer } from './shim-layer.ts';

export interface GvisorDriverOptions {
  readonly home: string;
  readonly homeKey: string;
  readonly programs: { readonly agent: string; readonly relay: string };
  /** Default: the one this machine has. */
  readonly runscProgram?: string;
  /** How long the agent of a sandbox may be silent while something is asked of it. */
  readonly agentAnswerMs?: number;
  /** How long memory may take to be written, and to be brought back. */
  readonly memoryMs?: number;
}

const startMs = 120_000;
/** Of a sandbox that an earlier daemon left standing still. */
const resumeMs = 20_000;
const kernelEndsWithinMs = 2000;
const lookAgainMs = 5;

interface Paths {
  readonly dir: string;
  readonly bundleDir: string;
  readonly rootDir: string;
  readonly tmpDir: string;
  readonly mountsDir: string;
  readonly socket: string;
  readonly holdSocket: string;
  readonly gateSocket: string;
  readonly record: string;
  readonly pausedMark: string;
}

type StartedProcesses = Omit<GvisorRecord, 'driver' | 'process' | 'waits'> & {
  readonly process: ProcessIdentity;
};

/** Sandboxes in gVisor: a kernel of their own, whose memory can be written down and brought back. */
export class GvisorDriver implements Driver {
  readonly name = 'gvisor';
  /** It is read inside a kernel that is itself isolated. */
  readonly takesForeignMemory = true;
  readonly needsNetns = true;
  readonly #patience: Patience;
  readonly #memoryMs: number;
  readonly #options: GvisorDriverOptions;
  /** Of this driver alone: another one takes what it finds among its own for its own. */
  readonly #dir: string;
  readonly #processors = new Processors();
  readonly #cgroups: HomeCgroups;
  readonly #machines = new Map<string, GvisorMachine>();
  readonly #cleaning = new Map<string, Promise<void>>();
  #ready: Promise<{ runsc: Runsc; platform: Platform }> | undefined;
  readonly #closing = new AbortController();

  constructor(options: GvisorDriverOptions) {
    this.#patience = patienceOf(options.agentAnswerMs);
    this.#memoryMs = options.memoryMs ?? defaultMemoryMs;
    this.#options = options;
    this.#dir = join(options.home, 'gvisor');
    this.#cgroups = new HomeCgroups(`coppice-${options.homeKey}`);
  }

  async probe(): Promise<DriverHealth> {
    try {
      const { platform } = await this.#prepare();
      const detail = `runsc ${platform.version}, platform ${platform.name}`;
      return {
        usable: true,
        detail,
        memoryCompatibility: formatMemoryTraits({
          program: 'runsc',
          version: platform.version,
          architecture: process.arch,
          cpuFeatures: cpuFeatures(),
        }),
        findings: platform.passedOver.map((message) => ({
          severity: 'info' as const,
          message: `a faster platform of gVisor does not work here: ${message}`,
          fix: 'Nothing needs to be done; update runsc or the kernel to have it.',
        })),
      };
    } catch (error) {
      if (!(error instanceof CoppiceError)) throw error;
      return {
        usable: false,
        detail: error.message,
        memoryCompatibility: null,
        findings: [{ severity: 'warning', message: error.message, fix: error.hint }],
      };
    }
  }

  async memoryRefusal(): Promise<undefined> {
    return undefined;
  }

  start(spec: MachineSpec, signal?: AbortSignal): Promise<Machine> {
    return this.#launch(spec, placed(spec.mounts), { signal, deadlineMs: startMs }, (runsc, { bundleDir }) =>
      runsc.startCommand(spec.id, bundleDir),
    );
  }

  async restore(spec: MachineSpec, checkpointDir: string, signal?: AbortSignal): Promise<Machine> {
    const mounts = placedForMemory(spec.mounts, checkpointDir);
    return this.#launch(spec, mounts, { signal, deadlineMs: this.#memoryMs }, (runsc, { bundleDir }) =>
      runsc.restoreCommand(spec.id, bundleDir, checkpointDir),
    );
  }

  async adopt(spec: MachineSpec): Promise<Machine | undefined> {
    checkId(spec.id);
    const paths = this.#paths(spec.id);
    const record = readRecord(paths.record);
    const identity = record?.process;
    if (identity == null || record?.waits === true || !isRunning(identity)) {
      // Also what was half started: its processes would keep it from ever starting again.
      if (existsSync(paths.dir)) await this.#cleanUp(spec.id);
      return undefined;
    }
    if (record?.relay !== undefined && !isRunning(record.relay)) {
      await this.#cleanUp(spec.id);
      return undefined;
    }
    // The daemon before may have died while it held the sandbox still.
    await this.#cgroups.group(spec.id).thaw();
    const mark = new PausedMark(paths.pausedMark);
    if (mark.isLeft()) {
      const { runsc } = await this.#prepare();
      await runsc.resumeIfPaused(spec.id, resumeMs);
      mark.remove();
    }
    return this.#machine(spec.id, { ...record, process: identity });
  }

  /** The memory of its sandboxes holds all that it needs. */
  forgetPrograms(): string[] {
    return [];
  }

  async discard(id: string): Promise<void> {
    checkId(id);
    await this.#cleanUp(id);
  }

  async sweep(keep: ReadonlySet<string>): Promise<string[]> {
    const removed: string[] = [];
    for (const id of this.#listIds()) {
      if (keep.has(id)) continue;
      await this.#cleanUp(id);
      removed.push(id);
    }
    return removed;
  }

  /** Sandboxes go on without the driver. */
  async close(): Promise<void> {
    for (const machine of this.#machines.values()) machine.leave();
    this.#machines.clear();
    // A program that hangs must not outlive us.
    this.#closing.abort();
    await this.#ready?.catch(() => {});
    await this.#cgroups.release();
  }

  async #launch(
    spec: MachineSpec,
    placedMounts: readonly PlacedMount[],
    bounds: Bounds,
    command: (runsc: Runsc, paths: Paths) => string[],
  ): Promise<Machine> {
    checkSpec(spec);
    const netns = this.#checkNetns(spec);
    const { runsc } = await this.#prepare();
    const paths = this.#paths(spec.id);
    const earlier = readRecord(paths.record)?.process;
    if (earlier != null && isRunning(earlier)) {
      throw new CoppiceError('wrong_state', `sandbox ${spec.id} runs already`);
    }
    mkdirSync(paths.dir, { recursive: true, mode: 0o700 });
    try {
      writeRecord(paths.record, { process: null });
      const group = this.#cgroups.group(spec.id);
      this.#cgroups.prepare();
      for (const directory of group.directories) makeCgroup(directory);
      for (const { file, value } of group.settings(sandboxLimits(spec.limits))) writeCgroupFile(file, value);
      const shim = makeShimLayer(join(this.#dir, 'shim'));
      const mounts = placedMounts.map((mount, number) => ({
        ...mount,
        place: join(paths.mountsDir, String(number)),
        readOnly: mount.host?.readOnly ?? false,
      }));
      for (const place of [paths.rootDir, paths.tmpDir, ...mounts.map((mount) => mount.place)])
        mkdirSync(place, { recursive: true });
      writeBundle(spec, {
        bundleDir: paths.bundleDir,
        rootDir: paths.rootDir,
        tmpDir: paths.tmpDir,
        mounts,
        gateSocket: paths.gateSocket,
        ...this.#options.programs,
      });
      const relayOptions: RelayOptions = {
        program: this.#options.programs.relay,
        socket: paths.socket,
        holdSocket: paths.holdSocket,
        gateSocket: paths.gateSocket,
        netns,
        imageDir: spec.image.directory,
        layers: overlayLayers(spec.image, shim, spec.diskDir),
        rootDir: paths.rootDir,
        tmpDir: paths.tmpDir,
        mounts,
        processors: this.#processors.choose(spec.limits.cpus),
        memoryBytes: spec.limits.memoryBytes,
        cgroupFiles: group.directories.map((directory) => join(directory, 'cgroup.procs')),
        command: command(runsc, paths),
      };
      const relay = await Relay.make(relayOptions, bounds);
      const mountedAt = mounts.map(({ guestPath }) => guestPath);
      const made = await this.#letGo(spec, paths, relay, { mountedAt, bounds });
      return await this.#machine(spec.id, made, bounds);
    } catch (error) {
      await this.#cleanUp(spec.id);
      throw error;
    }
  }

  /** The policy stands before the first instruction runs; it may have been set up while the sandbox was made. */
  async #letGo(
    spec: MachineSpec,
    paths: Paths,
    relay: Relay,
    { mountedAt, bounds }: { mountedAt: readonly string[]; bounds: Bounds },
  ): Promise<StartedProcesses> {
    try {
      const identify = (pid: number): ProcessIdentity => {
        const started = readStarted(pid);
        if (started !== undefined) return { pid, started };
        throw new CoppiceError('internal', `sandbox ${spec.id} ended right after its start`);
      };
      const made = { process: identify(relay.pid), relay: identify(relay.ownPid), mountedAt };
      writeRecord(paths.record, { ...made, waits: true });
      await spec.networkStands;
      await relay.go(bounds);
      writeRecord(paths.record, made);
      return made;
    } catch (error) {
      relay.drop();
      throw error;
    }
  }

  async #machine(
    id: string,
    { process: identity, relay, mountedAt = [workDirectory] }: StartedProcesses,
    bounds: Bounds = {},
  ): Promise<Machine> {
    const { runsc } = await this.#prepare();
    const { socket, holdSocket, pausedMark } = this.#paths(id);
    const connect = () => connectGuest(socket, { unaligned: true, patience: this.#patience });
    const machine: GvisorMachine = new GvisorMachine({
      id,
      pid: identity.pid,
      guest: await connectUnlessGivenUp(connect, bounds),
      connect,
      runsc,
      relay: this.#options.programs.relay,
      processors: this.#processors,
      cgroup: this.#cgroups.group(id),
      holdSocket,
      mark: new PausedMark(pausedMark),
      mountedAt,
      memoryMs: this.#memoryMs,
      isAlive: () => isRunning(identity),
      hasRelay: () => relay === undefined || isRunning(relay),
      // Once it was cleaned up after, what has this id is the next machine, which is none of its business.
      cleanUp: async () => {
        if (this.#machines.get(id) === machine) await this.#cleanUp(id);
        else await this.#cleaning.get(id);
      },
    });
    this.#machines.set(id, machine);
    return machine;
  }

  /** One at a time for each sandbox: its end is noticed while it is being stopped. */
  #cleanUp(id: string): Promise<void> {
    const under = this.#cleaning.get(id);
    if (under !== undefined) return under;
    const work = this.#removeAll(id).finally(() => this.#cleaning.delete(id));
    this.#cleaning.set(id, work);
    return work;
  }

  /** In reverse order of the start; each step may have been done before. */
  async #removeAll(id: string): Promise<void> {
    this.#machines.delete(id);
    const paths = this.#paths(id);
    const group = this.#cgroups.group(id);
    new PausedMark(paths.pausedMark).isLeft();
    await this.#endKernel(paths);
    await group.kill();
    // Nothing runs any more: a runsc that hangs, or is no longer installed, keeps nobody from clearing up.
    const found = await this.#prepare().catch(() => undefined);
    if (found === undefined) await forgetState(this.#stateDir, id);
    else await found.runsc.delete(id);
    await group.remove();
    rmSync(paths.dir, { recursive: true, force: true });
  }

  /**
   * The kernel of the sandbox first, and its relay buries it: what is killed together with its relay is left to PID 1 of
   * this machine, and runsc waits for that. One that does not go is killed with all the rest.
   */
  async #endKernel(paths: Paths): Promise<void> {
    const record = readRecord(paths.record);
    const identity = record?.process;
    if (identity == null || !isRunning(identity)) return;
    const relay = record?.relay;
    const isBurying = () => existsSync(paths.socket) && (relay === undefined || isRunning(relay));
    try {
      process.kill(identity.pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    const endMs = performance.now() + kernelEndsWithinMs;
    // The relay takes its socket away when it has buried the last of them.
    while (isBurying() && performance.now() < endMs) await sleep(lookAgainMs);
  }

  /**
   * runsc takes the addresses off the links of the namespace that it is given. In the host's own that would cut the
   * machine off its network, so that is refused whatever else was asked.
   */
  #checkNetns(spec: MachineSpec): string {
    if (spec.netns === undefined) {
      throw new CoppiceError(
        'invalid_argument',
        'a gVisor sandbox needs a network namespace that was prepared for it',
      );
    }
    const given = statSync(spec.netns);
    const own = statSync('/proc/self/ns/net');
    if (own.dev === given.dev && own.ino === given.ino) {
      throw new CoppiceError('invalid_argument', `${spec.netns} is the network namespace of the host`, {
        hint: 'Prepare a namespace for the sandbox first.',
      });
    }
    return spec.netns;
  }

  #prepare(): Promise<{ runsc: Runsc; platform: Platform }> {
    this.#ready ??= this.#find().catch((error: unknown) => {
      // Asked again next time: runsc may have been installed since.
      this.#ready = undefined;
      throw error;
    });
    return this.#ready;
  }

  async #find(): Promise<{ runsc: Runsc; platform: Platform }> {
    const program = findRunsc(this.#options.runscProgram);
    if (program === undefined) {
      throw new CoppiceError('unsupported', 'gVisor (runsc) is not installed', {
        hint: 'Run `coppice up` as root to let set-up install it, or put a runsc on PATH.',
      });
    }
    const platform = await probePlatform(program, this.#closing.signal);
    return { runsc: new Runsc(program, this.#stateDir, platform.name), platform };
  }

  get #stateDir(): string {
    return join(this.#dir, 'runsc');
  }

  /** Also those without a record: whoever made them died before it was written. */
  #listIds(): string[] {
    const directory = join(this.#dir, 'machines');
    return existsSync(directory) ? readdirSync(directory) : [];
  }

  #paths(id: string): Paths {
    const dir = join(this.#dir, 'machines', id);
    return {
      dir,
      bundleDir: join(dir, 'bundle'),
      rootDir: join(dir, 'root'),
      tmpDir: join(dir, 'tmp'),
      mountsDir: join(dir, 'mounts'),
      socket: join(dir, 'agent.sock'),
      holdSocket: join(dir, 'hold.sock'),
      gateSocket: join(dir, 'gate.sock'),
      record: join(dir, 'gvisor.json'),
      pausedMark: join(dir, 'paused'),
    };
  }
}
