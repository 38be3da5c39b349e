import { Duplex } from 'node:stream';
import type { ByteStream } from '@coppice/runtime';

/** A connection of a program inside as a stream of Node. Each direction ends by itself, with back-pressure both ways. */
export class GuestSocket extends Duplex {
  bytesRead = 0;
  readonly #stream: ByteStream;
  readonly #input: AsyncIterator<Buffer>;

  constructor(stream: ByteStream) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#input = stream.input[Symbol.asyncIterator]();
  }

  override _read(): void {
    this.#input.next().then(
      ({ done, value }) => {
        if (!done) this.bytesRead += value.length;
        this.push(done ? null : value);
      },
      () => this.destroy(),
    );
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, written: (error?: Error) => void): void {
    this.#stream.write(chunk).then(() => written(), written);
  }

  override _final(ended: (error?: Error) => void): void {
    this.#stream.end().then(() => ended(), ended);
  }

  override _destroy(_error: Error | null, closed: (error: Error | null) => void): void {
    this.#stream.close();
    // A program may go away at any time: that is no failure of anybody else.
    closed(null);
  }
}
