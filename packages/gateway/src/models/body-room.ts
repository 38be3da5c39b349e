import { CoppiceError } from '@coppice/protocol';

/** How many bytes of requests are in memory, of all and of each sandbox. */
export class BodyRoom {
  readonly #maxBytes: number;
  readonly #maxBytesPerSandbox: number;
  readonly #taken = new Map<string, number>();
  #takenInAll = 0;

  constructor(maxBytes: number, maxBytesPerSandbox: number) {
    this.#maxBytes = maxBytes;
    this.#maxBytesPerSandbox = maxBytesPerSandbox;
  }

  take(sandbox: string, bytes: number): void {
    const own = (this.#taken.get(sandbox) ?? 0) + bytes;
    if (own > this.#maxBytesPerSandbox || this.#takenInAll + bytes > this.#maxBytes)
      throw new CoppiceError('rate_limited', 'the requests that wait for an answer are too large together', {
        hint: 'Try again when one has been answered.',
      });
    this.#taken.set(sandbox, own);
    this.#takenInAll += bytes;
  }

  give(sandbox: string, bytes: number): void {
    this.#takenInAll -= bytes;
    const left = (this.#taken.get(sandbox) ?? 0) - bytes;
    if (left <= 0) this.#taken.delete(sandbox);
    else this.#taken.set(sandbox, left);
  }
}
