import type { Log } from './log.ts';

export interface Chore {
  readonly what: string;
  readonly everyMs: number;
  readonly work: () => Promise<void>;
}

/** Runs chores again and again, each never twice at once; one that fails is logged and tried again at its time. */
export class Housekeeper {
  readonly #log: Log;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #running = new Set<Promise<void>>();

  constructor(log: Log) {
    this.#log = log;
  }

  keep({ what, everyMs, work }: Chore): void {
    let busy = false;
    const timer = setInterval(() => {
      if (busy) return;
      busy = true;
      const run = work()
        .catch((error: unknown) => this.#log.warn({ err: error }, `${what} failed`))
        .finally(() => {
          busy = false;
          this.#running.delete(run);
        });
      this.#running.add(run);
    }, everyMs);
    timer.unref();
    this.#timers.push(timer);
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await Promise.all(this.#running);
  }
}
