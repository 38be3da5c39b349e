import type { Exit, RouteParams } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { bytesOfText } from './connection/bytes.ts';
import type { Caller, CallOptions } from './connection/caller.ts';
import { errorFromStreamEvent } from './connection/problem.ts';
import type { MessageSocket } from './connection/transport.ts';

export interface AttachOptions extends CallOptions {
  /** The screen as the daemon has kept it, rather than the last bytes. Acknowledge what was shown, or it stops. */
  readonly screen?: boolean;
}

/** An attachment to a terminal. It first shows what was last on the screen; leaving it keeps the terminal running. */
export class TerminalSession implements AsyncIterable<Uint8Array>, AsyncDisposable {
  readonly #socket: MessageSocket;
  readonly #name: string;
  #exit: Exit | undefined;
  #detached = false;

  private constructor(socket: MessageSocket, name: string) {
    this.#socket = socket;
    this.#name = name;
  }

  static async attach(
    caller: Caller,
    params: RouteParams<'attachTerminal'>,
    { screen = false, signal }: AttachOptions = {},
  ): Promise<TerminalSession> {
    const path = caller.path('attachTerminal', params, screen ? { show: 'screen' } : undefined);
    const socket = await caller.transport.socket(path, signal);
    return new TerminalSession(socket, `terminal ${params.terminal} of sandbox ${params.sandbox}`);
  }

  /** How its program ended; nothing while it runs. */
  get exit(): Exit | undefined {
    return this.#exit;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#socket.send(typeof data === 'string' ? bytesOfText(data) : data);
  }

  resize(cols: number, rows: number): Promise<void> {
    return this.#socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /** So many bytes have been shown; of a screen, the next ones come for it. */
  acknowledge(bytes: number): Promise<void> {
    return this.#socket.send(JSON.stringify({ type: 'ack', bytes }));
  }

  kill(signal = 15): Promise<void> {
    return this.#socket.send(JSON.stringify({ type: 'signal', signal }));
  }

  detach(): void {
    this.#detached = true;
    this.#socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for await (const message of this.#socket) {
        if (typeof message !== 'string') {
          yield message.data;
          continue;
        }
        const event = JSON.parse(message) as { type: string } & Exit;
        if (event.type === 'error') throw errorFromStreamEvent(message);
        if (event.type === 'exit') {
          const { type: _, ...exit } = event;
          this.#exit = exit;
          return;
        }
      }
      if (!this.#detached) throw new CoppiceError('unavailable', `the connection to ${this.#name} was lost`);
    } finally {
      this.#socket.close();
    }
  }
}
