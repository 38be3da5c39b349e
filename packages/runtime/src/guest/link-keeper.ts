import { setTimeout as sleep } from 'node:timers/promises';
import type { Guest } from './guest.ts';

export interface LinkKeeperOptions {
  readonly connect: () => Promise<Guest>;
  /** There is nobody left to reach. */
  readonly isOver: () => boolean;
}

const firstPauseMs = 20;
const longestPauseMs = 5000;
/** A link that lived that long was a good one. */
const steadyMs = 10_000;

/** Told why the agent cannot be reached, and with undefined once it can be again. */
export type LinkListener = (trouble: string | undefined) => void;

/** The way to one agent. A link that is lost is made again, for as long as there is an agent; what was under way fails. */
export class LinkKeeper {
  /** Settles when there is nobody left to reach, or when nobody wants to any more. */
  readonly over: Promise<void>;
  readonly #options: LinkKeeperOptions;
  #guest: Guest;
  #closed = false;
  #trouble: string | undefined;
  #listener: LinkListener = () => {};

  constructor(guest: Guest, options: LinkKeeperOptions) {
    this.#guest = guest;
    this.#options = options;
    this.over = this.#keep();
  }

  /** Over the link of now. */
  get guest(): Guest {
    return this.#guest;
  }

  /** Why it cannot be reached now. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** One listener. */
  onChange(listener: LinkListener): void {
    this.#listener = listener;
    if (this.#trouble !== undefined) listener(this.#trouble);
  }

  close(): void {
    this.#closed = true;
    this.#guest.close();
  }

  async #keep(): Promise<void> {
    let pauseMs = firstPauseMs;
    for (;;) {
      const sinceMs = performance.now();
      await this.#guest.closed;
      // One that greets and then talks nonsense, again and again, must not keep us busy.
      if (performance.now() - sinceMs > steadyMs) pauseMs = firstPauseMs;
      do {
        // Most often it ends because the sandbox does, which shows a moment later.
        await sleep(pauseMs, undefined, { ref: false });
        if (this.#closed || this.#options.isOver()) return;
        pauseMs = Math.min(2 * pauseMs, longestPauseMs);
      } while (!(await this.#tryAgain()));
    }
  }

  async #tryAgain(): Promise<boolean> {
    this.#say(this.#trouble ?? 'the connection to its agent was lost');
    try {
      const guest = await this.#options.connect();
      this.#guest = guest;
      if (this.#closed) guest.close();
      else this.#say(undefined);
      return true;
    } catch (error) {
      this.#say((error as Error).message);
      return false;
    }
  }

  #say(trouble: string | undefined): void {
    const changed = (trouble === undefined) !== (this.#trouble === undefined);
    this.#trouble = trouble;
    if (changed) this.#listener(trouble);
  }
}
