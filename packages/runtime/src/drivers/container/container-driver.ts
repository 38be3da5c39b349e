import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { HomeCgroups } from '../../cgroups/home-cgroups.ts';
import type { Driver, DriverHealth, Machine, MachineSpec } from '../../driver.ts';
import { connectGuest } from '../../guest/connect-guest.ts';
import { checkId, checkSpec } from '../../machine/check-spec.ts';
import { isRunning, type ProcessIdentity } from '../../machine/process-identity.ts';
import { ContainerMachine } from './container-machine.ts';
import { probeContainers } from './container-probe.ts';
import { criuRefusal } from './criu-probe.ts';
import { firstIdOf, IdSlots } from './id-slots.ts';
import { Launcher } from './launcher.ts';
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
}

const greetTimeoutMs = 30_000;
const standbyPattern = /^standby-(\d+)-\d+$/;
const logTailChars = 1000;

/** Containers made by bubblewrap in a user namespace of their own, with the agent as PID 1. */
export class ContainerDriver implements Driver {
  readonly name = 'container';
  readonly keepsMemory = false;
  readonly needsNetns = false;
  readonly #runRoot: string;
  readonly #options: Required<ContainerDriverOptions>;
  readonly #cgroups: HomeCgroups;
  readonly #launcher: Launcher;
  readonly #slots: IdSlots;
  readonly #bootId = readBootId();
  readonly #machines = new Map<string, ContainerMachine>();
  readonly #starting = new Set<string>();
  #prepared = false;

  constructor(options: ContainerDriverOptions) {
    this.#options = { bubblewrap: '/usr/bin/bwrap', standbys: 2, ...options };
    this.#runRoot = join(options.home, 'run');
    this.#cgroups = new HomeCgroups(`coppice-${options.homeKey}`);
    this.#slots = new IdSlots(options.homeKey);
    const v1Parents = this.#cgroups.v1Parents;
    this.#launcher = new Launcher({
      program: options.programs.launch,
      agent: options.programs.agent,
      bubblewrap: this.#options.bubblewrap,
      v1Parents,
      standbys: this.#options.standbys,
    });
  }

  probe(): Promise<DriverHealth> {
    return probeContainers({
      bubblewrap: this.#options.bubblewrap,
      programs: Object.values(this.#options.programs),
      cgroups: this.#cgroups.description,
    });
  }

  memoryRefusal(): Promise<string> {
    return criuRefusal();
  }

  async start(spec: MachineSpec): Promise<Machine> {
    checkSpec(spec);
    this.#prepare();
    if (this.#machines.has(spec.id) || this.#starting.has(spec.id) || this.#findInit(spec.id) !== undefined) {
      throw new CoppiceError('wrong_state', `sandbox ${spec.id} runs already`);
    }
    this.#starting.add(spec.id);
    try {
      return await this.#start(spec);
    } finally {
      this.#starting.delete(spec.id);
    }
  }

  async adopt(spec: MachineSpec): Promise<Machine | undefined> {
    checkId(spec.id);
    this.#prepare();
    const known = this.#machines.get(spec.id);
    if (known !== undefined) return known;
    const init = this.#findInit(spec.id);
    if (init === undefined) {
      await this.#clear(spec.id);
      return undefined;
    }
    // An earlier daemon may have died while it held the sandbox still.
    await this.#cgroups.group(spec.id).thaw();
    const monitor = readMachineRecord(this.#runDir(spec.id))?.monitor;
    const machine = await this.#take(spec.id, init);
    if (monitor !== undefined) this.#launcher.endMonitor(monitor, init);
    return machine;
  }

  async sweep(keep: ReadonlySet<string>): Promise<string[]> {
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

  /** Sandboxes go on without the driver. */
  async close(): Promise<void> {
    for (const machine of this.#machines.values()) machine.guest.close();
    this.#machines.clear();
    await this.#launcher.close();
    this.#cgroups.release();
  }

  async #start(spec: MachineSpec): Promise<Machine> {
    const runDir = this.#runDir(spec.id);
    const cgroup = this.#cgroups.group(spec.id);
    if (existsSync(runDir) || cgroup.directories.some((directory) => existsSync(directory)))
      await this.#clear(spec.id);
    const slot = this.#slots.take();
    const record: MachineRecord = { driver: 'container', bootId: this.#bootId, slot };
    try {
      mkdirSync(runDir, { recursive: true, mode: 0o700 });
      writeMachineRecord(runDir, record);
      const { init, monitor } = await this.#launcher.start({
        id: spec.id,
        runDir,
        imageDir: spec.imageDir,
        diskDir: spec.diskDir,
        workspaceDir: spec.workspaceDir,
        hostname: spec.hostname,
        firstId: firstIdOf(slot),
        memoryBytes: spec.limits.memoryBytes,
        v2Directory: cgroup.v2Directory,
        settings: cgroup.settings(spec.limits),
      });
      completeMachineRecord(runDir, record, { init, monitor });
      const machine = await this.#take(spec.id, init);
      // After the caller's own work: nobody waits for it.
      setImmediate(() => this.#launcher.endMonitor(monitor, init));
      return machine;
    } catch (error) {
      const log = this.#readLog(runDir);
      // With the record the range is given back there; twice would take it from whoever has it by then.
      const recorded = readMachineRecord(runDir) !== undefined;
      await this.#clear(spec.id);
      if (!recorded) this.#slots.release(slot);
      throw startFailure(spec.id, error, log);
    }
  }

  async #take(id: string, init: ProcessIdentity): Promise<ContainerMachine> {
    const runDir = this.#runDir(id);
    const ended = Promise.withResolvers<void>();
    // Watched from the first instant, and not one round trip later: to connect takes longer than that.
    const [guest] = await Promise.all([
      connectGuest(join(runDir, 'agent.sock'), { greetTimeoutMs }),
      this.#launcher.watch(init, ended.resolve),
    ]);
    const slot = readMachineRecord(runDir)?.slot;
    const machine = new ContainerMachine({
      id,
      init,
      guest,
      cgroup: this.#cgroups.group(id),
      launcher: this.#launcher,
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

function startFailure(id: string, error: unknown, log: string): CoppiceError {
  const code = error instanceof CoppiceError ? error.code : 'internal';
  const reason = error instanceof Error ? error.message : String(error);
  const said = log === '' ? '' : ` It said: ${log}`;
  return new CoppiceError(code, `sandbox ${id} did not start: ${reason}.${said}`, { cause: error });
}
