import type { Channel } from './channel.ts';
import { iterateChannel } from './channel-stream.ts';
import type { ByteStream } from './guest.ts';

/** A connection to a port of the sandbox. Each direction ends by itself. */
export class RemoteStream implements ByteStream {
  readonly input: AsyncIterable<Buffer>;
  readonly #channel: Channel;
  #ended = false;

  constructor(channel: Channel) {
    this.#channel = channel;
    this.input = iterateChannel(channel, (piece) => piece.data, { onAbandoned: () => channel.discard() });
  }

  async write(data: Uint8Array): Promise<void> {
    await this.#channel.write(data);
  }

  async end(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#channel.end();
  }

  close(): void {
    this.#channel.cancel();
  }
}
