import { CoppiceError } from '@coppice/protocol/errors';
import { errorFromConnection } from '../connection/problem.ts';
import type {
  HttpCall,
  LocalDirectories,
  MessageSocket,
  OpenAnswer,
  Transport,
  WholeAnswer,
} from '../connection/transport.ts';
import { BrowserSocket } from './browser-socket.ts';

export interface BrowserOptions {
  /** Where the daemon is, such as http://127.0.0.1:7310. Default: where the page came from. */
  readonly url?: string | URL;
  /** Default: the cookie that signed the page in. */
  readonly token?: string;
}

/** Calls by fetch and WebSocket. The browser pools connections, and sends the cookie of the page's own daemon. */
export class BrowserTransport implements Transport {
  readonly #base: URL;
  readonly #token: string | undefined;

  constructor({ url = location().href, token }: BrowserOptions = {}) {
    this.#base = new URL('.', url);
    this.#token = token;
  }

  get where(): string {
    return this.#base.origin;
  }

  async document(call: HttpCall): Promise<WholeAnswer> {
    const response = await this.#fetch(call);
    try {
      return { status: response.status, text: await response.text() };
    } catch (error) {
      throw this.#failure(error, call);
    }
  }

  async open(call: HttpCall): Promise<OpenAnswer> {
    const response = await this.#fetch(call);
    const reader = response.body?.getReader();
    const read = async function* (this: BrowserTransport): AsyncGenerator<Uint8Array, void, undefined> {
      for (;;) {
        const next = await reader?.read().catch((error: unknown) => {
          throw this.#failure(error, call);
        });
        if (next === undefined || next.done) return;
        yield next.value as Uint8Array;
      }
    };
    return {
      status: response.status,
      body: read.call(this),
      // Rejects when the answer failed before, which its reader was told already.
      close: () => void reader?.cancel().catch(() => undefined),
    };
  }

  socket(path: string, signal?: AbortSignal): Promise<MessageSocket> {
    const url = this.#url(path);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    return BrowserSocket.open(url, this.#token, signal);
  }

  async directories(): Promise<LocalDirectories> {
    throw new CoppiceError('unsupported', 'a browser cannot read or write directories of its machine', {
      hint: 'Use `files.archive` and `files.unpack` with a tar, or copy the files one by one.',
    });
  }

  close(): void {}

  #url(path: string): URL {
    return new URL(this.#base.pathname.replace(/\/$/, '') + path, this.#base);
  }

  async #fetch(call: HttpCall): Promise<Response> {
    const headers = new Headers(call.headers);
    if (this.#token !== undefined) headers.set('authorization', `Bearer ${this.#token}`);
    if (call.body !== undefined) headers.set('content-type', 'application/json');
    if (call.upload !== undefined) headers.set('content-type', 'application/octet-stream');
    const body = call.upload === undefined ? call.body : await uploadOf(call.upload);
    try {
      return await fetch(this.#url(call.path), {
        method: call.method,
        headers,
        credentials: 'same-origin',
        cache: 'no-store',
        ...(body === undefined ? {} : { body }),
        ...(call.signal === undefined ? {} : { signal: call.signal }),
      });
    } catch (error) {
      throw this.#failure(error, call);
    }
  }

  #failure(error: unknown, { method, path }: HttpCall): Error {
    return errorFromConnection(error as Error, this.where, `${method} ${path}`);
  }
}

/** Browsers stream uploads over HTTP/2 only, so pieces are gathered first. A File is read from disk as it is sent. */
const uploadOf = async (upload: NonNullable<HttpCall['upload']>): Promise<Blob> => {
  if (upload instanceof Blob) return upload;
  if (upload instanceof Uint8Array) return new Blob([upload as Uint8Array<ArrayBuffer>]);
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for await (const part of upload) parts.push(part as Uint8Array<ArrayBuffer>);
  return new Blob(parts);
};

const location = (): { readonly href: string } => {
  const found = (globalThis as { readonly location?: { readonly href: string } }).location;
  if (found !== undefined) return found;
  throw new CoppiceError('invalid_argument', 'there is no page whose daemon could be meant', {
    hint: 'Give the address of the daemon: new Coppice({ url, token }).',
  });
};
