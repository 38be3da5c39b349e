import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Takes in what agents write, one piece at a time for all runs. How much that is, programs in sandboxes decide, so after each piece
 * as much time goes by as it took: however many write without end, half of the daemon's time is left for everybody else.
 */
export class Intake {
  readonly #pause: (durationMs: number) => Promise<unknown>;
  #free: Promise<unknown> = Promise.resolve();

  constructor(pause: (durationMs: number) => Promise<unknown> = sleep) {
    this.#pause = pause;
  }

  take(work: () => void): Promise<void> {
    let spentMs = 0;
    const turn = this.#free.then(() => {
      const beganMs = performance.now();
      try {
        work();
      } finally {
        spentMs = performance.now() - beganMs;
      }
    });
    this.#free = turn.catch(() => {}).then(() => this.#pause(spentMs));
    return turn;
  }
}
