import type { Socket } from 'node:net';
import { CoppiceError } from '@coppice/protocol';
import type { RawData, WebSocket } from 'ws';

export type Message = { readonly text: string } | { readonly binary: Buffer };

const highWaterBytes = 1024 * 1024;
/** What may wait to be taken: either many messages or large ones. */
const queuedMessages = 64;
const queuedBytes = 4 * 1024 * 1024;

const toBuffer = (data: RawData): Buffer => {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : data;
};

/** A WebSocket as a sequence of messages, with back-pressure both ways. */
export class MessageSocket {
  readonly #socket: WebSocket;
  readonly #transport: Socket;
  readonly #firstMessageMs: number;
  readonly #queue: Message[] = [];
  readonly #closed = Promise.withResolvers<void>();
  #wake: (() => void) | undefined;
  #queuedBytes = 0;
  #open = true;
  #gathering = false;

  /** `firstMessageMs`: how long a peer that has to speak first may take. */
  constructor(socket: WebSocket, transport: Socket, firstMessageMs: number) {
    this.#socket = socket;
    this.#transport = transport;
    this.#firstMessageMs = firstMessageMs;
    socket.on('message', (data, isBinary) => {
      const buffer = toBuffer(data);
      this.#queue.push(isBinary ? { binary: buffer } : { text: buffer.toString() });
      this.#queuedBytes += buffer.length;
      if (this.#queue.length >= queuedMessages || this.#queuedBytes >= queuedBytes) socket.pause();
      this.#wake?.();
    });
    socket.on('error', () => socket.terminate());
    socket.on('close', () => {
      this.#open = false;
      this.#wake?.();
      this.#closed.resolve();
    });
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Settles when the peer is gone. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** What the peer says first; undefined where it goes without a word. One that says nothing for too long is left. */
  async first(): Promise<Message | undefined> {
    const timer = setTimeout(() => this.#socket.terminate(), this.#firstMessageMs);
    try {
      return await this.next();
    } finally {
      clearTimeout(timer);
    }
  }

  /** The next message; undefined once the peer is gone. */
  async next(): Promise<Message | undefined> {
    while (this.#queue.length === 0 && this.#open) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const message = this.#queue.shift();
    if (message !== undefined)
      this.#queuedBytes -= 'binary' in message ? message.binary.length : Buffer.byteLength(message.text);
    const isLow = this.#queue.length < queuedMessages / 2 && this.#queuedBytes < queuedBytes / 2;
    if (this.#socket.isPaused && isLow) this.#socket.resume();
    return message;
  }

  /**
   * Returns at once while little is under way, and otherwise when the peer has taken it. `onSent`: the data is not needed any
   * more.
   */
  send(data: string | Uint8Array, onSent: () => void = () => {}): Promise<void> | undefined {
    if (!this.#open) throw new CoppiceError('cancelled', 'the caller closed the connection');
    this.#gather();
    if (this.#socket.bufferedAmount < highWaterBytes) {
      this.#socket.send(data, onSent);
      return undefined;
    }
    return new Promise((resolve, reject) => {
      this.#socket.send(data, (error) => {
        onSent();
        if (error)
          reject(new CoppiceError('cancelled', 'the caller closed the connection', { cause: error }));
        else resolve();
      });
    });
  }

  /** What is sent in one turn leaves in one write. */
  #gather(): void {
    if (this.#gathering) return;
    this.#gathering = true;
    this.#transport.cork();
    process.nextTick(() => {
      this.#gathering = false;
      this.#transport.uncork();
    });
  }

  close(code = 1000): void {
    this.#socket.close(code);
  }
}
