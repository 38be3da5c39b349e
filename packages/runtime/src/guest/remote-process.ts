import { BodyReader } from './body-reader.ts';
import type { Channel } from './channel.ts';
import { iterateChannel } from './channel-stream.ts';
import type { ExitStatus, GuestProcess, StreamedChunk } from './guest.ts';
import { checkSignal, decodeFinalExit } from './process-codec.ts';

/** A foreground process in the sandbox. */
export class RemoteProcess implements GuestProcess {
  readonly pid: number;
  readonly output: AsyncIterable<StreamedChunk>;
  readonly exit: Promise<ExitStatus>;
  readonly #channel: Channel;
  #iterating = false;
  #inputEnded = false;

  constructor(channel: Channel, pid: number) {
    this.#channel = channel;
    this.pid = pid;
    const delivered = Promise.withResolvers<void>();
    const chunks = iterateChannel(
      channel,
      (piece): StreamedChunk => ({
        stream: piece.stream === 0 ? 'stdout' : 'stderr',
        data: piece.data,
        marked: (mark) => piece.marked(mark),
        release: () => piece.release(),
      }),
      // The process goes on; what it still writes is dropped.
      { onAbandoned: () => channel.discard(), onFinished: () => delivered.resolve() },
    );
    this.output = {
      [Symbol.asyncIterator]: () => {
        this.#iterating = true;
        return chunks;
      },
    };
    this.exit = channel.done.then(async (body) => {
      // Who reads the output has had all of it by the time the exit is known; who does not is not made to wait for it.
      if (this.#iterating) await delivered.promise;
      return decodeFinalExit(new BodyReader(body));
    });
    this.exit.catch(() => {});
  }

  async writeStdin(data: Uint8Array): Promise<void> {
    await this.#channel.write(data);
  }

  async endStdin(): Promise<void> {
    if (this.#inputEnded) return;
    this.#inputEnded = true;
    this.#channel.end();
  }

  async signal(signal: number): Promise<void> {
    this.#channel.signal(checkSignal(signal));
  }

  close(): void {
    this.#channel.cancel();
  }
}
