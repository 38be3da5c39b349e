import net from 'node:net';
import WebSocket, { type RawData } from 'ws';
import { deferred } from '../connection/deferred.ts';
import { errorFromConnection, errorFromProblem } from '../connection/problem.ts';
import type { BinaryMessage, MessageSocket } from '../connection/transport.ts';
import { type Endpoint, pathPrefix, placeOf } from './endpoint.ts';
import { MessageBounds } from './message-bounds.ts';
import { ReadMemory } from './read-memory.ts';

const highWaterBytes = 1024 * 1024;
const maxMessageBytes = 64 * 1024 * 1024;
const normalClosure = 1000;
/** Smaller ones are copied: kept for long, they must not hold on to what they came with. */
const leastLentBytes = 16 * 1024;

/** Reads in larger steps than sockets do by themselves, and passes messages on that lie whole in what was read. */
const connectPlain = (endpoint: Endpoint, memory: ReadMemory): net.Socket => {
  const bounds = new MessageBounds();
  const socket: net.Socket = net.connect({
    ...placeOf(endpoint),
    noDelay: true,
    onread: {
      buffer: () => memory.next(),
      callback: (length) => {
        const whole = bounds.whole(memory.filled(length));
        if (whole > 0) socket.emit('data', memory.taken(whole));
        return true;
      },
    },
  });
  return socket;
};

/** A WebSocket to the daemon, read as an async iterable with back-pressure down to the other end. */
export class NodeSocket implements MessageSocket {
  readonly #socket: WebSocket;
  readonly #memory: ReadMemory;
  readonly #queue: { readonly message: BinaryMessage | string; readonly bytes: number }[] = [];
  #queuedBytes = 0;
  #ended = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  private constructor(socket: WebSocket, memory: ReadMemory) {
    this.#socket = socket;
    this.#memory = memory;
    socket.on('message', (data: RawData, isBinary: boolean) => this.#take(data as Buffer, isBinary));
    socket.on('close', () => {
      this.#ended = true;
      this.#wake?.();
    });
    socket.on('error', (error) => {
      this.#failure = error;
    });
  }

  static open(endpoint: Endpoint, where: string, path: string, signal?: AbortSignal): Promise<NodeSocket> {
    const { url, token } = endpoint;
    const memory = new ReadMemory();
    const { promise, resolve, reject } = deferred<NodeSocket>();
    const base = url.origin.replace(/^http/, 'ws') + pathPrefix(endpoint);
    const socket = new WebSocket(base + path, {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true,
      maxPayload: maxMessageBytes,
      ...(url.protocol === 'https:' ? {} : { createConnection: () => connectPlain(endpoint, memory) }),
    });
    const abort = (): void => socket.terminate();
    const opened = new NodeSocket(socket, memory);
    socket.once('open', () => resolve(opened));
    socket.once('close', () => signal?.removeEventListener('abort', abort));
    socket.once('unexpected-response', (request, response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('close', () => {
        reject(errorFromProblem(response.statusCode ?? 0, Buffer.concat(chunks).toString(), `GET ${path}`));
        request.destroy();
      });
    });
    socket.once('error', (error) => {
      const cause = signal?.aborted ? Object.assign(error, { code: 'ABORT_ERR' }) : error;
      reject(errorFromConnection(cause, where, `GET ${path}`));
    });
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    return promise;
  }

  /** Resolves when the message was handed to the kernel, so that a fast writer waits for a slow reader. */
  send(data: Uint8Array | string): Promise<void> {
    const { promise, resolve, reject } = deferred<void>();
    this.#socket.send(data, (error) => (error ? reject(error) : resolve()));
    return promise;
  }

  get isOpen(): boolean {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  close(): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.close(normalClosure);
    // The other end may be busy sending: it must not hold this process up.
    this.#socket.terminate();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<BinaryMessage | string, void, undefined> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) {
        this.#queuedBytes -= next.bytes;
        if (this.#queuedBytes < highWaterBytes && this.#socket.isPaused) this.#socket.resume();
        yield next.message;
        continue;
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#ended) return;
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#wake = undefined;
    }
  }

  #take(data: Buffer, isBinary: boolean): void {
    const release = this.#memory.lend(data);
    const stays = isBinary && data.length >= leastLentBytes;
    const message = isBinary ? { data: stays ? data : Buffer.from(data), release } : data.toString();
    if (!stays) release();
    this.#queue.push({ message, bytes: data.length });
    this.#queuedBytes += data.length;
    if (this.#queuedBytes >= highWaterBytes) this.#socket.pause();
    this.#wake?.();
  }
}
