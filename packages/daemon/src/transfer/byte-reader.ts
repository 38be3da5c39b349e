import type { Readable } from 'node:stream';

/** Takes exactly as many bytes from a stream as are asked for. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #failure: (error: unknown) => unknown;
  #rest: Buffer = Buffer.alloc(0);

  /** `failure` makes what is thrown of an error of the stream; of undefined where it ended too early. */
  constructor(stream: Readable, failure: (error: unknown) => unknown) {
    this.#chunks = stream[Symbol.asyncIterator]();
    this.#failure = failure;
  }

  async take(length: number): Promise<Buffer> {
    const pieces = [this.#rest];
    let held = this.#rest.length;
    while (held < length) {
      const chunk = await this.#next();
      if (chunk === undefined) throw this.#failure(undefined);
      pieces.push(chunk);
      held += chunk.length;
    }
    const all = pieces.length === 1 ? this.#rest : Buffer.concat(pieces);
    this.#rest = all.subarray(length);
    return all.subarray(0, length);
  }

  async atEnd(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const chunk = await this.#next();
      if (chunk === undefined) return true;
      this.#rest = chunk;
    }
    return false;
  }

  async #next(): Promise<Buffer | undefined> {
    try {
      const { done, value } = await this.#chunks.next();
      return done ? undefined : value;
    } catch (error) {
      throw this.#failure(error);
    }
  }
}
