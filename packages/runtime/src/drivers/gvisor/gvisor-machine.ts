import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxCgroup } from '../../cgroups/sandbox-cgroup.ts';
import type { MachineRefusals } from '../../driver.ts';
import {
  type Cover,
  endingOf,
  type GiveUp,
  type Machine,
  type MachineLimits,
  type MachineUsage,
} from '../../driver.ts';
import type { Guest } from '../../guest/guest.ts';
import { LinkKeeper, type LinkListener } from '../../guest/link-keeper.ts';
import type { Processors } from '../../machine/processors.ts';
import { runProgram } from '../../programs/run-program.ts';
import { writeMountedAt } from './mounted-at.ts';
import type { PausedMark } from './paused-mark.ts';
import { holdRelay } from './relay.ts';
import type { Runsc } from './runsc.ts';
import { sandboxLimits } from './sandbox-limits.ts';

export interface GvisorMachineParts {
  readonly id: string;
  readonly pid: number;
  readonly guest: Guest;
  /** Again, after the link was lost. */
  readonly connect: () => Promise<Guest>;
  readonly runsc: Runsc;
  readonly cgroup: SandboxCgroup;
  /** The program coppice-relay. */
  readonly relay: string;
  readonly processors: Processors;
  readonly holdSocket: string;
  /** There while its memory is being written: whoever finds it must let it go on. */
  readonly mark: PausedMark;
  /** Where directories are mounted in it. */
  readonly mountedAt: readonly string[];
  /** How long its memory may take to be written. */
  readonly memoryMs: number;
  readonly isAlive: () => boolean;
  /** Whether the relay is, without which nobody reaches it again. */
  readonly hasRelay: () => boolean;
  /** Removes what is left of it on this machine. */
  readonly cleanUp: () => Promise<void>;
}

const lookAgainMs = 20;
/** After a checkpoint that was given up; somebody may wait for it to be ended. */
const resumesWithinMs = 10_000;
const resumeAgainMs = 2000;

/** A sandbox in gVisor's kernel. */
export class GvisorMachine implements Machine {
  readonly id: string;
  readonly pid: number;
  readonly exited: Promise<void>;
  readonly #parts: GvisorMachineParts;
  readonly #link: LinkKeeper;
  #endedBecause: string | undefined;
  #lastRefusals: MachineRefusals | undefined;
  #left = false;
  #stopped = false;
  /** Why it stands still though nobody wants it to. */
  #stall: string | undefined;
  #listener: LinkListener = () => {};
  #letGo: (() => void) | undefined;

  constructor(parts: GvisorMachineParts) {
    this.id = parts.id;
    this.pid = parts.pid;
    this.#parts = parts;
    this.#link = new LinkKeeper(parts.guest, {
      connect: parts.connect,
      isOver: () => !parts.isAlive() || !parts.hasRelay(),
    });
    this.exited = this.#waitForEnd();
  }

  get guest(): Guest {
    return this.#link.guest;
  }

  get endedBecause(): string | undefined {
    return this.#endedBecause;
  }

  get trouble(): string | undefined {
    return this.#stall ?? this.#link.trouble;
  }

  onTrouble(listener: LinkListener): void {
    this.#listener = listener;
    this.#link.onChange((trouble) => {
      if (this.#stall === undefined) listener(trouble);
    });
  }

  /** It goes on; this process has nothing more to do with it, its end included. */
  leave(): void {
    this.#left = true;
    this.#link.close();
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
    const { cgroup, relay, processors } = this.#parts;
    cgroup.setLimits(sandboxLimits(limits));
    // How many it has is settled at its start; where they are is not.
    await runProgram([relay, '--move', cgroup.tasksFile, processors.choose(limits.cpus) ?? processors.all]);
  }

  async cover(covers: readonly Cover[]): Promise<void> {
    await this.#parts.runsc.cover(this.id, covers);
  }

  async usage(): Promise<MachineUsage> {
    return this.#parts.cgroup.usage();
  }

  refusals(): MachineRefusals {
    return this.#lastRefusals ?? this.#parts.cgroup.refusals();
  }

  async stop(graceMs: number, signal?: number): Promise<void> {
    this.#stopped = true;
    if (graceMs > 0 && this.#parts.isAlive()) {
      // One that does not answer is killed below.
      const asked = this.guest.shutdown(graceMs, signal).catch(() => {});
      await Promise.race([asked, sleep(graceMs + 1000, undefined, { ref: false })]);
    }
    this.#link.close();
    await this.#parts.cleanUp();
  }

  /**
   * Everything inside stands still from before the memory is written until the disk is snapshotted. The relay is held
   * first: a message that was half taken would be missing its other half in whatever is restored from here.
   */
  async checkpoint(
    directory: string,
    frozen: () => Promise<void>,
    { signal, ended }: GiveUp = {},
  ): Promise<{ pauseMs: number }> {
    const { runsc, holdSocket, mark, memoryMs } = this.#parts;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const hold = await holdRelay(holdSocket, { signal });
    const letGo = this.guest.hold();
    const startedMs = performance.now();
    mark.set();
    try {
      await runsc.pause(this.id, signal);
      await runsc.checkpoint(this.id, directory, {
        signal,
        deadlineMs: memoryMs,
        onStarted: (pid) => mark.set(pid),
      });
      writeMountedAt(directory, this.#parts.mountedAt);
      await frozen();
      await runsc.resume(this.id);
      mark.remove();
    } catch (error) {
      await this.#goOnAfter(ended);
      throw error;
    } finally {
      hold.release();
      letGo();
    }
    return { pauseMs: performance.now() - startedMs };
  }

  /** After a checkpoint that failed, or was given up: whether its kernel stands still is not known. */
  async #goOnAfter(ended: AbortSignal | undefined): Promise<void> {
    const { runsc, mark } = this.#parts;
    if (endingOf(ended) === 'destroy') return;
    try {
      await runsc.resumeIfPaused(this.id, resumesWithinMs);
      mark.remove();
    } catch (error) {
      // Where it is ended next, or this process is, nobody waits for that: the mark tells the next daemon.
      void this.#resumeLater(error as Error);
    }
  }

  /** Until it goes on, or is no more. */
  async #resumeLater(first: Error): Promise<void> {
    const { runsc, mark, isAlive } = this.#parts;
    this.#setStall(
      `it stands still since its memory was to be written, and runsc cannot resume it: ${first.message}`,
    );
    while (isAlive() && !this.#left && !this.#stopped) {
      await sleep(resumeAgainMs, undefined, { ref: false });
      if (!isAlive() || this.#left || this.#stopped) break;
      try {
        await runsc.resumeIfPaused(this.id);
        mark.remove();
        break;
      } catch {
        // The first failure is what is told; this is tried again.
      }
    }
    this.#setStall(undefined);
  }

  #setStall(stall: string | undefined): void {
    const before = this.trouble;
    this.#stall = stall;
    if ((before === undefined) !== (this.trouble === undefined)) this.#listener(this.trouble);
  }

  async #waitForEnd(): Promise<void> {
    await this.#link.over;
    if (this.#left) return new Promise(() => {});
    if (this.#parts.isAlive() && !this.#parts.hasRelay())
      this.#endedBecause = 'its relay (coppice-relay) ended, and it could not be reached any more';
    else while (this.#parts.isAlive()) await sleep(lookAgainMs, undefined, { ref: false });
    // Its kernel is one process for the machine's: what takes too much memory ends all of it.
    this.#lastRefusals = this.#parts.cgroup.refusals();
    if (this.#lastRefusals.oomKills > 0) this.#endedBecause ??= 'it ran out of memory';
    await this.#parts.cleanUp();
  }
}
