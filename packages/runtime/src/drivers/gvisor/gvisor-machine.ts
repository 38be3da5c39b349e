import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxCgroup } from '../../cgroups/sandbox-cgroup.ts';
import type { Machine, MachineLimits, MachineUsage } from '../../driver.ts';
import type { Guest } from '../../guest/guest.ts';
import { LinkKeeper, type LinkListener } from '../../guest/link-keeper.ts';
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
  readonly holdSocket: string;
  /** There while its memory is being written: whoever finds it must let it go on. */
  readonly pausedMark: string;
  readonly isAlive: () => boolean;
  /** Whether the relay is, without which nobody reaches it again. */
  readonly hasRelay: () => boolean;
  /** Removes what is left of it on this machine. */
  readonly cleanUp: () => Promise<void>;
}

const lookAgainMs = 20;

/** A sandbox in gVisor's kernel. */
export class GvisorMachine implements Machine {
  readonly id: string;
  readonly pid: number;
  readonly exited: Promise<void>;
  readonly #parts: GvisorMachineParts;
  readonly #link: LinkKeeper;
  #endedBecause: string | undefined;
  #left = false;
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
    return this.#link.trouble;
  }

  onTrouble(listener: LinkListener): void {
    this.#link.onChange(listener);
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
    this.#parts.cgroup.setLimits(sandboxLimits(limits));
  }

  async usage(): Promise<MachineUsage> {
    return this.#parts.cgroup.usage();
  }

  async stop(graceMs: number): Promise<void> {
    if (graceMs > 0 && this.#parts.isAlive()) {
      // One that does not answer is killed below.
      const asked = this.guest.shutdown(graceMs).catch(() => {});
      await Promise.race([asked, sleep(graceMs + 1000, undefined, { ref: false })]);
    }
    this.#link.close();
    await this.#parts.cleanUp();
  }

  /**
   * Everything inside stands still from before the memory is written until the disk is snapshotted. The relay is held
   * first: a message that was half taken would be missing its other half in whatever is restored from here.
   */
  async checkpoint(directory: string, frozen: () => Promise<void>): Promise<{ pauseMs: number }> {
    const { runsc, holdSocket, pausedMark } = this.#parts;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const hold = await holdRelay(holdSocket);
    const letGo = this.guest.hold();
    const startedMs = performance.now();
    writeFileSync(pausedMark, '');
    try {
      await runsc.pause(this.id);
      try {
        await runsc.checkpoint(this.id, directory);
        await frozen();
      } finally {
        await runsc.resume(this.id);
      }
    } finally {
      rmSync(pausedMark, { force: true });
      hold.release();
      letGo();
    }
    return { pauseMs: performance.now() - startedMs };
  }

  async #waitForEnd(): Promise<void> {
    await this.#link.over;
    if (this.#left) return new Promise(() => {});
    if (this.#parts.isAlive() && !this.#parts.hasRelay())
      this.#endedBecause = 'its relay (coppice-relay) ended, and it could not be reached any more';
    else while (this.#parts.isAlive()) await sleep(lookAgainMs, undefined, { ref: false });
    await this.#parts.cleanUp();
  }
}
