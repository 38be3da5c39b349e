import { setImmediate as nextTurn } from 'node:timers/promises';

const stepsPerTurn = 256;

/** For loops as long as a sandbox makes them: from time to time everybody else has a turn. */
export class Turns {
  #steps = 0;

  async step(): Promise<void> {
    this.#steps += 1;
    if (this.#steps % stepsPerTurn === 0) await nextTurn();
  }
}
