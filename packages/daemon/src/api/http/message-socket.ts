import { CoppiceError } from '@coppice/protocol';
import type { RawData, WebSocket } from 'ws';

export type Message = { readonly text: string } | { readonly binary: Buffer };

const highWaterBytes = 4 * 1024 * 1024;
const queuedMessages = 64;
const taggedBytes = 64 * 1024 + 1;
/** Less is not worth a whole buffer while it waits for a slow peer. */
const leastReusedBytes = taggedBytes / 4;
const mostFree = 32;

const toBuffer = (data: RawData): Buffer => {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : data;
};

/** A WebSocket as a sequence of messages, with back-pressure both ways. */
export class MessageSocket {
  readonly #socket: WebSocket;
  readonly #queue: Message[] = [];
  readonly #free: Buffer[] = [];
  readonly #closed = Promise.withResolvers<void>();
  #wake: (() => void) | undefined;
  #open = true;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data, isBinary) => {
      const buffer = toBuffer(data);
      this.#queue.push(isBinary ? { binary: buffer } : { text: buffer.toString() });
      if (this.#queue.length >= queuedMessages) socket.pause();
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

  /** The next message; undefined once the peer is gone. */
  async next(): Promise<Message | undefined> {
    while (this.#queue.length === 0 && this.#open) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const message = this.#queue.shift();
    if (this.#socket.isPaused && this.#queue.length < queuedMessages / 2) this.#socket.resume();
    return message;
  }

  /** Returns at once while little is under way, and otherwise when the peer has taken it. */
  send(data: string | Uint8Array): Promise<void> | undefined {
    return this.#send(data, () => {});
  }

  /** The same for a tag and bytes in one message. The bytes are copied, into memory that is used again. */
  sendTagged(tag: number, data: Uint8Array): Promise<void> | undefined {
    const reused = data.length >= leastReusedBytes && data.length < taggedBytes;
    const memory = reused
      ? (this.#free.pop() ?? Buffer.allocUnsafeSlow(taggedBytes))
      : Buffer.alloc(data.length + 1);
    memory[0] = tag;
    memory.set(data, 1);
    return this.#send(memory.subarray(0, data.length + 1), () => {
      if (reused && this.#free.length < mostFree) this.#free.push(memory);
    });
  }

  #send(data: string | Uint8Array, onSent: () => void): Promise<void> | undefined {
    if (!this.#open) throw new CoppiceError('cancelled', 'the caller closed the connection');
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

  close(code = 1000): void {
    this.#socket.close(code);
  }
}
