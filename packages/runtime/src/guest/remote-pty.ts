import { BodyReader } from './body-reader.ts';
import type { Channel } from './channel.ts';
import { iterateChannel } from './channel-stream.ts';
import type { ExitStatus, PtyAttachment } from './guest.ts';
import { decodeFinalExit } from './process-codec.ts';

/** One attachment to a terminal that the agent owns. */
export class RemotePty implements PtyAttachment {
  readonly output: AsyncIterable<Buffer>;
  readonly exit: Promise<ExitStatus>;
  readonly #channel: Channel;

  constructor(channel: Channel) {
    this.#channel = channel;
    this.output = iterateChannel(channel, (piece) => piece.data, { onAbandoned: () => channel.discard() });
    this.exit = channel.done.then((body) => decodeFinalExit(new BodyReader(body)));
    this.exit.catch(() => {});
  }

  async write(data: Uint8Array): Promise<void> {
    await this.#channel.write(data);
  }

  detach(): void {
    this.#channel.cancel();
  }
}
