import type { CoppiceError } from '@coppice/protocol';
import { BodyReader } from './body-reader.ts';
import type { Channel } from './channel.ts';
import { decodeWatchEvent } from './file-codec.ts';
import type { GuestWatch, WatchEvent } from './guest.ts';
import { protocolError } from './wire.ts';

/** Two paths of 4 KiB at most, and their lengths. */
const eventMaxBytes = 16 << 10;

/** The events below a directory. Aborting ends the iteration without an error. */
export class RemoteWatch implements GuestWatch {
  readonly ready: Promise<void>;
  readonly #channel: Channel;
  readonly #signal: AbortSignal;

  constructor(channel: Channel, signal: AbortSignal) {
    this.#channel = channel;
    this.#signal = signal;
    this.ready = channel.replied.then(() => undefined);
    this.ready.catch(() => {});
    const abort = () => channel.cancel();
    if (signal.aborted) abort();
    else {
      signal.addEventListener('abort', abort, { once: true });
      channel.done.catch(() => {}).finally(() => signal.removeEventListener('abort', abort));
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent, void> {
    let rest: Buffer = Buffer.alloc(0);
    try {
      for (let piece = await this.#channel.read(); piece !== undefined; piece = await this.#channel.read()) {
        rest = rest.length === 0 ? piece.data : Buffer.concat([rest, piece.data]);
        for (;;) {
          const length = rest.length < 4 ? undefined : rest.readUInt32LE(0);
          if (length !== undefined && length > eventMaxBytes)
            throw protocolError('a watch event is too long');
          if (length === undefined || rest.length < 4 + length) break;
          const reader = new BodyReader(rest.subarray(4, 4 + length));
          const event = decodeWatchEvent(reader);
          reader.finish();
          rest = rest.subarray(4 + length);
          yield event;
        }
      }
    } catch (error) {
      if (!(this.#signal.aborted && (error as CoppiceError).code === 'cancelled')) throw error;
    } finally {
      this.#channel.cancel();
    }
  }
}
