import { mkdir, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { SandboxCgroup } from '../../cgroups/sandbox-cgroup.ts';
import type { MachineRefusals } from '../../driver.ts';
import {
  type Cover,
  type GiveUp,
  LeftBehind,
  type Machine,
  type MachineLimits,
  type MachineUsage,
} from '../../driver.ts';
import type { Guest } from '../../guest/guest.ts';
import { LinkKeeper, type LinkListener } from '../../guest/link-keeper.ts';
import { checkHostname, checkLimits } from '../../machine/check-spec.ts';
import type { ProcessIdentity } from '../../machine/process-identity.ts';
import type { Processors } from '../../machine/processors.ts';
import { runProgram } from '../../programs/run-program.ts';
import { freezeBetweenStarts } from './between-starts.ts';
import { CheckpointMark } from './checkpoint-mark.ts';
import { type CheckpointRecord, writeCheckpointRecord } from './checkpoint-record.ts';
import { mountsFromHost } from './container-mounts.ts';
import { dumpMemory, giveToRoot, HarmedByDump } from './criu.ts';
import type { Launcher } from './launcher.ts';
import { borrowDescriptors } from './lent-descriptors.ts';
import { hasOutsideConnections } from './outside-connections.ts';
import { namePagesByProcess } from './page-names.ts';
import { watchedPlaces } from './watched-places.ts';

/** What the agent may take beyond the grace that it was given. */
const agentSlackMs = 2000;

const coverMs = 60_000;

/** Short at first: what cannot be had at one moment seldom can later in the same one. */
const patiencesS = [2, 5, 30];

export interface ContainerParts {
  readonly id: string;
  readonly init: ProcessIdentity;
  readonly guest: Guest;
  /** Again, after the link was lost. */
  readonly connect: () => Promise<Guest>;
  readonly cgroup: SandboxCgroup;
  readonly launcher: Launcher;
  readonly processors: Processors;
  readonly runDir: string;
  /** Which one it runs; fails where that is not known. */
  readonly agent: () => string;
  readonly watchesModes: boolean;
  /** Where CRIU is; fails where it cannot be used. */
  readonly findCriu: () => Promise<string>;
  /** How long its memory may take to be written. */
  readonly memoryMs: number;
  /** Called once, when no process is left: removes what remains of it on the host. */
  readonly cleanUp: () => Promise<void>;
}

export class ContainerMachine implements Machine {
  readonly id: string;
  readonly pid: number;
  readonly exited: Promise<void>;
  readonly #parts: ContainerParts;
  readonly #link: LinkKeeper;
  readonly #gone = Promise.withResolvers<void>();
  #lastUsage: MachineUsage | undefined;
  #lastRefusals: MachineRefusals | undefined;
  #ended = false;
  #endedBecause: string | undefined;
  #letGo: (() => void) | undefined;

  constructor(parts: ContainerParts) {
    this.#parts = parts;
    this.id = parts.id;
    this.pid = parts.init.pid;
    this.#link = new LinkKeeper(parts.guest, { connect: parts.connect, isOver: () => this.#ended });
    this.exited = this.#gone.promise;
    // Whoever waits sees a failed clean-up; if nobody does it must not end the daemon.
    this.exited.catch(() => {});
  }

  get guest(): Guest {
    return this.#link.guest;
  }

  get trouble(): string | undefined {
    return this.#link.trouble;
  }

  onTrouble(listener: LinkListener): void {
    this.#link.onChange(listener);
  }

  /** It goes on; this process has nothing more to do with it. */
  leave(): void {
    this.#link.close();
  }

  /** Told by the launcher. Everything of the sandbox is removed before `exited` settles, so it may be started again at once. */
  onInitExit(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#finish().then(this.#gone.resolve, this.#gone.reject);
  }

  async freeze(): Promise<void> {
    this.#letGo ??= this.guest.hold();
    try {
      await this.#parts.cgroup.freeze();
    } catch (error) {
      this.#goOn();
      throw error;
    }
  }

  async thaw(): Promise<void> {
    await this.#parts.cgroup.thaw();
    this.#goOn();
  }

  #goOn(): void {
    this.#letGo?.();
    this.#letGo = undefined;
  }

  async setLimits(limits: MachineLimits): Promise<void> {
    checkLimits(limits);
    const { cgroup, launcher, processors } = this.#parts;
    cgroup.setLimits(limits);
    await runProgram([
      launcher.program,
      'processors',
      cgroup.tasksFile,
      processors.choose(limits.cpus) ?? processors.all,
    ]);
  }

  async cover(covers: readonly Cover[]): Promise<void> {
    const pairs = covers.flatMap(({ file, place }) => [file, place]);
    const { launcher } = this.#parts;
    await runProgram([launcher.program, 'cover', String(this.pid), ...pairs], { deadlineMs: coverMs });
  }

  /** After the end: as it was last, so that a kill for memory can be told from others. */
  async usage(): Promise<MachineUsage> {
    return this.#lastUsage ?? this.#parts.cgroup.usage();
  }

  async setHostname(hostname: string): Promise<void> {
    checkHostname(hostname);
    await this.#parts.launcher.setHostname(this.#parts.init, hostname);
  }

  get endedBecause(): string | undefined {
    return this.#endedBecause;
  }

  /** The sockets through which the agent is reached are lent out meanwhile: what has come to them waits there. */
  async checkpoint(
    directory: string,
    frozen: () => Promise<void>,
    giveUp: GiveUp = {},
  ): Promise<{ pauseMs: number }> {
    const { launcher, runDir } = this.#parts;
    const criu = await this.#parts.findCriu();
    const mark = new CheckpointMark(runDir);
    mark.set();
    const letGo = this.guest.hold();
    let leftBehind = false;
    try {
      const lent = await borrowDescriptors(launcher.program, this.pid, { signal: giveUp.signal });
      const startedMs = performance.now();
      try {
        await this.#atRest(async (patienceS) => {
          if (!(await this.#dump(criu, directory, mark, patienceS, giveUp))) return false;
          await frozen();
          return true;
        });
      } catch (error) {
        leftBehind = error instanceof LeftBehind;
        if (leftBehind) lent.leave();
        else if (error instanceof HarmedByDump) await this.#endAs(error.message);
        // Where it cannot take them back either, the link shows that.
        else await lent.giveBack(giveUp).catch(() => {});
        throw error;
      }
      await lent.giveBack(giveUp);
      const pauseMs = performance.now() - startedMs;
      await giveToRoot(directory);
      namePagesByProcess(directory);
      return { pauseMs };
    } finally {
      letGo();
      // The next daemon finds it, and waits for CRIU.
      if (!leftBehind) mark.remove();
    }
  }

  /** Its processes are of no use any more. */
  async #endAs(reason: string): Promise<void> {
    this.#endedBecause = reason;
    await Promise.race([this.#parts.cgroup.kill(() => this.#ended), this.exited]);
  }

  /** Freezes it, more than once where the moment was no good one. */
  async #atRest(work: (patienceS: number) => Promise<boolean>): Promise<void> {
    const { cgroup } = this.#parts;
    for (const patienceS of patiencesS) {
      await freezeBetweenStarts(cgroup);
      let leftBehind = false;
      try {
        if (await work(patienceS)) return;
      } catch (error) {
        leftBehind = error instanceof LeftBehind;
        throw error;
      } finally {
        // What CRIU still has in its hands stands still until it is done.
        if (!leftBehind) await cgroup.thaw();
      }
    }
    throw new CoppiceError('timeout', `CRIU did not get hold of every process of sandbox ${this.id}`, {
      hint: 'The sandbox goes on. Try again; a process may be waiting for a disk that does not answer.',
    });
  }

  async #dump(
    criu: string,
    directory: string,
    mark: CheckpointMark,
    patienceS: number,
    giveUp: GiveUp,
  ): Promise<boolean> {
    const { pid } = this;
    const freezer = this.#parts.cgroup.freezerDirectory;
    const record: CheckpointRecord = {
      agent: this.#parts.agent(),
      mounts: mountsFromHost(pid),
      tcp: hasOutsideConnections(pid) ? 'close' : 'keep',
      watchesModes: this.#parts.watchesModes,
    };
    // What an attempt before it has left would be taken for a part of this one.
    await rm(directory, { recursive: true, force: true });
    // What restores it is for a moment neither the host's root nor the sandbox's; all of it lies in a home that is root's alone.
    await mkdir(directory, { recursive: true, mode: 0o711 });
    writeCheckpointRecord(directory, record);
    return dumpMemory(criu, {
      launch: this.#parts.launcher.program,
      sandboxId: this.id,
      pid,
      directory,
      workDir: this.#parts.runDir,
      freezer,
      record,
      watched: watchedPlaces(pid, freezer),
      patienceS,
      onStarted: (criuPid) => mark.set(criuPid),
      deadlineMs: this.#parts.memoryMs,
      giveUp,
    });
  }

  refusals(): MachineRefusals {
    return this.#lastRefusals ?? this.#parts.cgroup.refusals();
  }

  async stop(graceMs: number, signal?: number): Promise<void> {
    if (!this.#ended) {
      if (graceMs > 0) {
        // One that stands still can neither hear nor end.
        await this.thaw();
        await this.#ask(graceMs, signal);
      }
      // The end is announced sooner than looking for it would find it.
      if (!this.#ended) {
        await Promise.race([this.#parts.cgroup.kill(() => this.#ended), this.exited]);
      }
    }
    await this.exited;
  }

  async #ask(graceMs: number, signal?: number): Promise<void> {
    const patience = new AbortController();
    const asked = this.guest.shutdown(graceMs, signal).then(
      () => this.exited,
      // An agent that cannot be asked any more is killed.
      () => undefined,
    );
    const tired = sleep(graceMs + agentSlackMs, undefined, { signal: patience.signal }).catch(() => {});
    await Promise.race([asked, this.exited, tired]);
    patience.abort();
  }

  async #finish(): Promise<void> {
    this.#link.close();
    this.#lastRefusals = this.#parts.cgroup.refusals();
    this.#lastUsage = { ...this.#parts.cgroup.usage(), pids: 0, memoryBytes: 0 };
    await this.#parts.cgroup.kill();
    await this.#parts.cgroup.remove();
    await this.#parts.cleanUp();
  }
}
