import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { makeCgroup, writeCgroupFile } from '../../cgroups/cgroup-files.ts';
import type { HomeCgroups } from '../../cgroups/home-cgroups.ts';
import type { Driver, DriverHealth, Machine, MachineSpec } from '../../driver.ts';
import { connectGuest } from '../../guest/connect-guest.ts';
import { cpuFeatures } from './cpu-features.ts';
import { GvisorMachine, type GvisorRecord, writeRecord } from './gvisor-machine.ts';
import { writeBundle } from './oci-bundle.ts';
import { mountRoot, unmountRoot } from './overlay-root.ts';
import { findRunsc, type Platform, probePlatform } from './platform-probe.ts';
import { startTicksOf } from './process-identity.ts';
import { startRelay } from './relay.ts';
import { Runsc } from './runsc.ts';
import { sandboxLimits } from './sandbox-limits.ts';

export interface GvisorDriverOptions {
  /** Holds a directory for each sandbox. */
  readonly runDir: string;
  readonly cgroups: HomeCgroups;
  readonly agentProgram: string;
  readonly relayProgram: string;
  /** Default: the one this machine has. */
  readonly runscProgram?: string;
}

interface Paths {
  readonly dir: string;
  readonly bundleDir: string;
  readonly rootDir: string;
  readonly socket: string;
  readonly holdSocket: string;
  readonly pidFile: string;
  readonly record: string;
}

/** Sandboxes in gVisor: a kernel of their own, whose memory can be written down and brought back. */
export class GvisorDriver implements Driver {
  readonly name = 'gvisor';
  readonly keepsMemory = true;
  readonly needsNetns = true;
  readonly #options: GvisorDriverOptions;
  #ready: Promise<{ runsc: Runsc; platform: Platform }> | undefined;

  constructor(options: GvisorDriverOptions) {
    this.#options = options;
  }

  async probe(): Promise<DriverHealth> {
    try {
      const { platform } = await this.#prepare();
      const detail = `runsc ${platform.version}, platform ${platform.name}`;
      return {
        usable: true,
        detail,
        memoryCompatibility: `runsc ${platform.version} ${process.arch} ${cpuFeatures()}`,
        findings: platform.passedOver.map((message) => ({
          severity: 'warning' as const,
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

  start(spec: MachineSpec): Promise<Machine> {
    return this.#launch(spec, (runsc, paths) => runsc.runCommand(spec.id, paths.bundleDir, paths.pidFile));
  }

  restore(spec: MachineSpec, checkpointDir: string): Promise<Machine> {
    return this.#launch(spec, (runsc, paths) =>
      runsc.restoreCommand(spec.id, paths.bundleDir, paths.pidFile, checkpointDir),
    );
  }

  async adopt(spec: MachineSpec): Promise<Machine | undefined> {
    const record = this.#readRecord(spec.id);
    if (record === undefined || startTicksOf(record.pid) !== record.startTicks) return undefined;
    return this.#machine(spec.id, record);
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

  async close(): Promise<void> {}

  async #launch(spec: MachineSpec, command: (runsc: Runsc, paths: Paths) => string[]): Promise<Machine> {
    const { runsc } = await this.#prepare();
    const netns = this.#checkNetns(spec);
    const paths = this.#paths(spec.id);
    mkdirSync(paths.dir, { recursive: true, mode: 0o700 });
    try {
      writeRecord(paths.record, { driver: 'gvisor', pid: 0, startTicks: '' });
      const group = this.#options.cgroups.group(spec.id);
      this.#options.cgroups.prepare();
      for (const directory of group.directories) makeCgroup(directory);
      for (const { file, value } of group.settings(sandboxLimits(spec.limits))) writeCgroupFile(file, value);
      await mountRoot(spec.imageDir, spec.diskDir, paths.rootDir);
      writeBundle(spec, {
        bundleDir: paths.bundleDir,
        rootDir: paths.rootDir,
        agent: this.#options.agentProgram,
      });
      await startRelay({
        program: this.#options.relayProgram,
        socket: paths.socket,
        holdSocket: paths.holdSocket,
        netns,
        cgroupFiles: group.directories.map((directory) => join(directory, 'cgroup.procs')),
        command: command(runsc, paths),
      });
      const pid = Number(readFileSync(paths.pidFile, 'utf8'));
      const startTicks = startTicksOf(pid);
      if (startTicks === undefined)
        throw new CoppiceError('internal', `sandbox ${spec.id} ended right after its start`);
      const record: GvisorRecord = { driver: 'gvisor', pid, startTicks };
      writeRecord(paths.record, record);
      return await this.#machine(spec.id, record);
    } catch (error) {
      await this.#cleanUp(spec.id);
      throw error;
    }
  }

  async #machine(id: string, { pid, startTicks }: GvisorRecord): Promise<Machine> {
    const { runsc } = await this.#prepare();
    const { socket, holdSocket } = this.#paths(id);
    return new GvisorMachine({
      id,
      pid,
      guest: await connectGuest(socket, { unaligned: true }),
      runsc,
      cgroup: this.#options.cgroups.group(id),
      holdSocket,
      isAlive: () => startTicksOf(pid) === startTicks,
      cleanUp: () => this.#cleanUp(id),
    });
  }

  /** In reverse order of the start; each step may have been done before. */
  async #cleanUp(id: string): Promise<void> {
    const paths = this.#paths(id);
    const group = this.#options.cgroups.group(id);
    await group.kill();
    const { runsc } = await this.#prepare();
    await runsc.delete(id);
    await unmountRoot(paths.rootDir);
    await group.remove();
    rmSync(paths.dir, { recursive: true, force: true });
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
    const platform = await probePlatform(program);
    return { runsc: new Runsc(program, join(this.#options.runDir, 'runsc'), platform.name), platform };
  }

  #readRecord(id: string): GvisorRecord | undefined {
    try {
      const record = JSON.parse(readFileSync(this.#paths(id).record, 'utf8')) as Partial<GvisorRecord>;
      return record.driver === 'gvisor' ? (record as GvisorRecord) : undefined;
    } catch {
      return undefined;
    }
  }

  #listIds(): string[] {
    try {
      return readdirSync(this.#options.runDir).filter((name) => this.#readRecord(name) !== undefined);
    } catch {
      return [];
    }
  }

  #paths(id: string): Paths {
    const dir = join(this.#options.runDir, id);
    return {
      dir,
      bundleDir: join(dir, 'bundle'),
      rootDir: join(dir, 'root'),
      socket: join(dir, 'agent.sock'),
      holdSocket: join(dir, 'hold.sock'),
      pidFile: join(dir, 'pid'),
      record: join(dir, 'gvisor.json'),
    };
  }
}
