import type { DiskStore } from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import type { Machine, Network } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { Log } from '../host/log.ts';
import { diskBytes, type MachineStarter } from './machine-starter.ts';
import { hostnameOf, type SandboxNames } from './sandbox-names.ts';
import type { SandboxPlan } from './sandbox-plan.ts';

export interface WarmMachine {
  readonly id: string;
  /** What it stands on, which may have gone since, and another have come under the same name. */
  readonly imageId: string;
  /** Its hostname already: whoever has no other name in mind takes this one, and nothing needs to be changed. */
  readonly name: string;
  readonly machine: Machine;
}

export interface WarmPoolParts {
  readonly size: number;
  /** The shape that is kept warm; undefined while its image does not exist yet. */
  readonly shape: () => SandboxPlan | undefined;
  readonly names: SandboxNames;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly network: Network;
  readonly ids: IdSource;
  readonly log: Log;
}

/** After a take the caller's own work comes first; a refill may wait that long. */
const refillDelayMs = 25;
const retryDelayMs = 5_000;

/**
 * Started machines of the default shape, on empty disks. They are in no table: what a dead daemon had kept warm belongs to
 * nobody, and the next one sweeps it.
 */
export class WarmPool {
  readonly #parts: WarmPoolParts;
  readonly #ready: WarmMachine[] = [];
  #timer: NodeJS.Timeout | undefined;
  #filling: Promise<void> | undefined;
  #closed = false;

  constructor(parts: WarmPoolParts) {
    this.#parts = parts;
  }

  get readyCount(): number {
    return this.#ready.length;
  }

  /** The name of the machine that is taken next; advice only. */
  get nextName(): string | undefined {
    return this.#ready[0]?.name;
  }

  /** A machine of just this shape, or undefined: never one that is nearly right. */
  take(plan: SandboxPlan): WarmMachine | undefined {
    const index = this.#ready.findIndex(({ imageId }) => imageId === plan.imageId);
    if (index < 0 || !this.#fits(plan)) return undefined;
    const [warm] = this.#ready.splice(index, 1);
    this.refillSoon();
    return warm;
  }

  async rename({ name, machine }: WarmMachine, hostname: string): Promise<void> {
    if (hostnameOf(name) === hostname) return;
    if (machine.setHostname !== undefined) await machine.setHostname(hostname);
    else await machine.guest.setHostname(hostname);
  }

  async discard({ id, machine }: WarmMachine): Promise<void> {
    await machine.stop(0);
    await this.#parts.network.release(id);
    await this.#parts.disks.removeDisk(id);
  }

  refillSoon(delayMs = refillDelayMs): void {
    if (this.#closed || this.#timer !== undefined || this.#parts.size === 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#filling ??= this.#fill().finally(() => {
        this.#filling = undefined;
      });
    }, delayMs);
    this.#timer.unref();
  }

  /** Warm machines do not outlive the daemon that knows them. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#filling;
    await Promise.all(this.#ready.splice(0).map((warm) => this.discard(warm)));
  }

  async #fill(): Promise<void> {
    while (!this.#closed) {
      const shape = this.#parts.shape();
      const stale = this.#ready.find(({ imageId }) => imageId !== shape?.imageId);
      if (stale === undefined && (shape === undefined || this.#ready.length >= this.#parts.size)) return;
      try {
        if (stale !== undefined) await this.#remove(stale);
        else await this.#addOne(shape!);
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'a warm sandbox could not be started');
        this.refillSoon(retryDelayMs);
        return;
      }
    }
  }

  async #addOne(shape: SandboxPlan): Promise<void> {
    const { disks, ids, starter, names } = this.#parts;
    const id = ids.next('sandbox');
    const name = names.make();
    try {
      await disks.createDisk(id, diskBytes(shape));
      const record = { ...shape, id, name, hostname: hostnameOf(name) };
      const machine = await starter.startBare(record as SandboxRecord);
      const warm = { id, imageId: shape.imageId, name, machine };
      this.#ready.push(warm);
      const ended = () => void this.#drop(warm);
      machine.exited.then(ended, ended);
    } catch (error) {
      await disks.removeDisk(id);
      throw error;
    }
  }

  async #drop(warm: WarmMachine): Promise<void> {
    if (!this.#ready.includes(warm)) return;
    await this.#remove(warm).catch((error: unknown) => {
      this.#parts.log.warn({ err: error }, 'a warm sandbox that ended could not be cleaned');
    });
    this.refillSoon(retryDelayMs);
  }

  async #remove(warm: WarmMachine): Promise<void> {
    this.#ready.splice(this.#ready.indexOf(warm), 1);
    await this.discard(warm);
  }

  #fits(plan: SandboxPlan): boolean {
    const shape = this.#parts.shape();
    return (
      shape !== undefined &&
      plan.mounts.length === 0 &&
      plan.driver === shape.driver &&
      plan.imageId === shape.imageId &&
      plan.cpus === shape.cpus &&
      plan.memoryMb === shape.memoryMb &&
      plan.diskMb === shape.diskMb &&
      plan.pids === shape.pids
    );
  }
}
