import type { Machine } from '@coppice/runtime';

/** The sandboxes that run, as this daemon holds them. */
export class Machines {
  readonly #live = new Map<string, Machine>();
  /** Found running by recovery, not yet in hand again. */
  readonly #arriving = new Map<string, Promise<void>>();
  #lost: ((sandboxId: string, machine: Machine) => Promise<void>) | undefined;
  #unreached: ((sandboxId: string, trouble: string | undefined) => void) | undefined;
  readonly #losses = new Set<Promise<void>>();
  #closed = false;

  /** Told of each machine that ended while nobody had asked it to. One listener, set before the first machine is added. */
  onLost(listener: (sandboxId: string, machine: Machine) => Promise<void>): void {
    this.#lost = listener;
  }

  /** Told when one cannot be reached, and when it can be again. One listener, likewise. */
  onUnreached(listener: (sandboxId: string, trouble: string | undefined) => void): void {
    this.#unreached = listener;
  }

  get(sandboxId: string): Machine | undefined {
    return this.#live.get(sandboxId);
  }

  ids(): string[] {
    return [...this.#live.keys()];
  }

  add(sandboxId: string, machine: Machine): void {
    this.#live.set(sandboxId, machine);
    const ended = () => {
      if (this.#closed || this.#live.get(sandboxId) !== machine) return;
      if (this.#lost === undefined) throw new Error('nobody listens for machines that end');
      const loss = this.#lost(sandboxId, machine).finally(() => this.#losses.delete(loss));
      this.#losses.add(loss);
    };
    machine.onTrouble((trouble) => {
      if (!this.#closed && this.#live.get(sandboxId) === machine) this.#unreached?.(sandboxId, trouble);
    });
    // It rejects where cleaning up failed: the machine is gone all the same.
    machine.exited.then(ended, ended);
  }

  /** From here on its end is expected. */
  take(sandboxId: string): Machine | undefined {
    const machine = this.#live.get(sandboxId);
    this.#live.delete(sandboxId);
    return machine;
  }

  /** What ends from now on is for the next daemon to find; what is being dealt with is waited for. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#losses);
  }

  expect(sandboxId: string, arrival: Promise<void>): void {
    this.#arriving.set(sandboxId, arrival);
    void arrival.finally(() => this.#arriving.delete(sandboxId));
  }

  /** Undefined when there is nothing to wait for, so that the common path costs nothing. */
  arrival(sandboxId: string): Promise<void> | undefined {
    return this.#arriving.get(sandboxId);
  }
}
