import { CoppiceError } from '@coppice/protocol/errors';
import { socketProtocol, tokenProtocol } from '@coppice/protocol/socket';
import { deferred } from '../connection/deferred.ts';
import type { BinaryMessage, MessageSocket } from '../connection/transport.ts';

const normalClosure = 1000;
/** A browser buffers without bound; a writer waits while this much has not left yet. */
const highWaterBytes = 1024 * 1024;
const drainPollMs = 10;

const nothing = (): void => undefined;

/** A WebSocket of the browser as an async iterable. A browser cannot hold the other end back: what comes is queued. */
export class BrowserSocket implements MessageSocket {
  readonly #socket: WebSocket;
  readonly #queue: (BinaryMessage | string)[] = [];
  #ended = false;
  #wake: (() => void) | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('message', ({ data }) => {
      this.#queue.push(
        typeof data === 'string' ? data : { data: new Uint8Array(data as ArrayBuffer), release: nothing },
      );
      this.#wake?.();
    });
    socket.addEventListener('close', () => {
      this.#ended = true;
      this.#wake?.();
    });
  }

  /** A browser sends no headers with a WebSocket, so a token goes along as one of the protocols that are offered. */
  static open(url: URL, token: string | undefined, signal?: AbortSignal): Promise<BrowserSocket> {
    const { promise, resolve, reject } = deferred<BrowserSocket>();
    const socket = new WebSocket(
      url,
      token === undefined ? [socketProtocol] : [socketProtocol, tokenProtocol(token)],
    );
    const opened = new BrowserSocket(socket);
    const abort = (): void => socket.close(normalClosure);
    socket.addEventListener('open', () => resolve(opened));
    socket.addEventListener('close', () => {
      signal?.removeEventListener('abort', abort);
      // Browsers tell a page nothing about the answer to a refused WebSocket.
      reject(
        signal?.aborted
          ? new CoppiceError('cancelled', `GET ${url.pathname} was cancelled`)
          : new CoppiceError('unavailable', `the connection to ${url.host}${url.pathname} was not accepted`, {
              hint: 'The sandbox may be gone, the token may not cover it, or the daemon may be down.',
            }),
      );
    });
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    return promise;
  }

  get isOpen(): boolean {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  async send(data: Uint8Array | string): Promise<void> {
    if (!this.isOpen) throw new CoppiceError('unavailable', 'the connection to the daemon was closed');
    this.#socket.send(data as Uint8Array<ArrayBuffer> | string);
    while (this.isOpen && this.#socket.bufferedAmount > highWaterBytes)
      await new Promise((resolve) => setTimeout(resolve, drainPollMs));
  }

  close(): void {
    this.#socket.close(normalClosure);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<BinaryMessage | string, void, undefined> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) {
        yield next;
        continue;
      }
      if (this.#ended) return;
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#wake = undefined;
    }
  }
}
