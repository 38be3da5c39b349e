import net from 'node:net';
import WebSocket, { type RawData } from 'ws';
import type { Connection } from './connection.ts';
import { errorFromConnection, errorFromProblem } from './problem.ts';

const highWaterBytes = 4 * 1024 * 1024;
const maxMessageBytes = 64 * 1024 * 1024;
const normalClosure = 1000;
const readBytes = 256 * 1024;

/**
 * Reads in larger steps than sockets do by themselves: most messages then lie whole in what was read, and are not put together
 * from parts in yet another buffer.
 */
const connectPlain = (url: URL, socketPath: string | undefined): net.Socket => {
  const place =
    socketPath === undefined ? { host: unbracketed(url.hostname), port: portOf(url) } : { path: socketPath };
  const socket: net.Socket = net.connect({
    ...place,
    noDelay: true,
    onread: {
      buffer: Buffer.allocUnsafeSlow(readBytes),
      callback: (length, bytes) => {
        socket.emit('data', Buffer.from(bytes.subarray(0, length)));
        return true;
      },
    },
  });
  return socket;
};

const portOf = (url: URL): number => (url.port === '' ? 80 : Number(url.port));
/** How an address of IPv6 stands in a URL is not how a socket takes it. */
const unbracketed = (hostname: string): string => hostname.replace(/^\[(.*)\]$/, '$1');

/** A WebSocket to the daemon, read as an async iterable with back-pressure down to the other end. */
export class DaemonSocket implements AsyncIterable<Buffer | string> {
  readonly #socket: WebSocket;
  readonly #queue: (Buffer | string)[] = [];
  #queuedBytes = 0;
  #ended = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data: RawData, isBinary: boolean) => this.#take(data as Buffer, isBinary));
    socket.on('close', () => {
      this.#ended = true;
      this.#wake?.();
    });
    socket.on('error', (error) => {
      this.#failure = error;
    });
  }

  static open(connection: Connection, path: string, signal?: AbortSignal): Promise<DaemonSocket> {
    const { url, socketPath, token } = connection.endpoint;
    const { where } = connection;
    const { promise, resolve, reject } = Promise.withResolvers<DaemonSocket>();
    const base = url.origin.replace(/^http/, 'ws') + url.pathname.replace(/\/$/, '');
    const socket = new WebSocket(base + path, {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true,
      maxPayload: maxMessageBytes,
      ...(url.protocol === 'https:' ? {} : { createConnection: () => connectPlain(url, socketPath) }),
    });
    const abort = (): void => socket.terminate();
    const opened = new DaemonSocket(socket);
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
    const { promise, resolve, reject } = Promise.withResolvers<void>();
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

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer | string, void, undefined> {
    for (;;) {
      const message = this.#queue.shift();
      if (message !== undefined) {
        this.#queuedBytes -= message.length;
        if (this.#queuedBytes < highWaterBytes && this.#socket.isPaused) this.#socket.resume();
        yield message;
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
    this.#queue.push(isBinary ? data : data.toString());
    this.#queuedBytes += data.length;
    if (this.#queuedBytes >= highWaterBytes) this.#socket.pause();
    this.#wake?.();
  }
}
