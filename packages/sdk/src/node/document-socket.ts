import net from 'node:net';
import type tls from 'node:tls';
import { deferred } from '../connection/deferred.ts';
import { AnswerParser, type KeptAnswer } from './answer-parser.ts';
import { type Endpoint, placeOf } from './endpoint.ts';

interface Waiting {
  readonly resolve: (answer: KeptAnswer) => void;
  readonly reject: (error: NodeJS.ErrnoException) => void;
}

const failure = (message: string, code: string): NodeJS.ErrnoException =>
  Object.assign(new Error(message), { code });

const connect = (endpoint: Endpoint): net.Socket => {
  const place = placeOf(endpoint);
  if ('path' in place || endpoint.url.protocol === 'http:') return net.connect({ ...place, noDelay: true });
  // Loaded when it is used: most daemons are on this machine.
  const { connect: connectSecurely } = process.getBuiltinModule('node:tls') as typeof tls;
  return connectSecurely({ ...place, ...(net.isIP(place.host) === 0 ? { servername: place.host } : {}) });
};

/** One connection, for calls whose question and answer are each sent and read as a whole, one after another. */
export class DocumentSocket {
  readonly #socket: net.Socket;
  #parser = new AnswerParser();
  #waiting: Waiting | undefined;
  #isUsed = false;
  #usableUntilMs = Number.POSITIVE_INFINITY;

  constructor(endpoint: Endpoint) {
    this.#socket = connect(endpoint);
    this.#socket.on('data', (bytes: Buffer) => this.#take(bytes));
    this.#socket.on('error', (error) => this.#fail(error));
    this.#socket.on('close', () => this.#end());
  }

  /** It has answered before, so that the other end may have given it up since. */
  get isUsed(): boolean {
    return this.#isUsed;
  }

  get isUsable(): boolean {
    return !this.#socket.destroyed && performance.now() < this.#usableUntilMs;
  }

  exchange(request: string, signal: AbortSignal | undefined): Promise<KeptAnswer> {
    const abort = (): void => void this.#socket.destroy(failure('it was cancelled', 'ABORT_ERR'));
    const { promise, resolve, reject } = deferred<KeptAnswer>();
    this.#waiting = { resolve, reject };
    this.#socket.ref();
    if (signal?.aborted) abort();
    else this.#socket.write(request);
    if (signal === undefined) return promise;
    signal.addEventListener('abort', abort, { once: true });
    return promise.finally(() => signal.removeEventListener('abort', abort));
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(bytes: Buffer): void {
    try {
      // What comes without having been asked for makes the connection useless.
      const answer = this.#waiting === undefined ? undefined : this.#parser.push(bytes);
      if (answer !== undefined) this.#answer(answer);
      else if (this.#waiting === undefined) this.#socket.destroy();
    } catch (error) {
      this.#socket.destroy(error as Error);
    }
  }

  #answer(answer: KeptAnswer): void {
    const { resolve } = this.#waiting as Waiting;
    this.#waiting = undefined;
    this.#isUsed = true;
    this.#parser = new AnswerParser();
    this.#usableUntilMs = performance.now() + answer.idleMs;
    // An answer that came before all was sent is a refusal: the rest would be taken for the next question.
    if (answer.idleMs === 0 || this.#socket.writableLength > 0) this.#socket.destroy();
    // An idle connection keeps no process from ending.
    else this.#socket.unref();
    resolve(answer);
  }

  #fail(error: NodeJS.ErrnoException): void {
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  #end(): void {
    const answer = this.#waiting === undefined ? undefined : this.#parser.end();
    if (answer !== undefined) this.#answer(answer);
    else if (this.#waiting !== undefined) this.#fail(failure('the answer was cut short', 'ECONNRESET'));
  }
}
