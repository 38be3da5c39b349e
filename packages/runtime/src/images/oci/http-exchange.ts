import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  Agent as PlainAgent,
  request as plainRequest,
} from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { CoppiceError } from '@coppice/protocol';
import { checkAddress } from './registry-address.ts';

export interface HttpQuestion {
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | { readonly stream: Readable; readonly sizeBytes: number };
  readonly signal?: AbortSignal | undefined;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Where it came from, after redirects. */
  readonly url: URL;
  /** To be read to its end, or destroyed. */
  readonly body: IncomingMessage;
}

export interface HttpExchangeOptions {
  /** Certificates of authorities besides those that Node and this machine trust, in PEM. */
  readonly authorities?: readonly string[];
  /** A peer that sends nothing for so long is taken for gone. */
  readonly idleMs?: number;
}

const mostRedirects = 5;
const redirects = new Set([301, 302, 303, 307, 308]);

/** Speaks HTTP with registries: connections are kept, redirects followed with care. */
export class HttpExchange {
  readonly #plain = new PlainAgent({ keepAlive: true, maxSockets: 8 });
  readonly #tls = new TlsAgent({ keepAlive: true, maxSockets: 8 });
  readonly #authorities: readonly string[];
  readonly #idleMs: number;
  #context: SecureContext | undefined;
  #closed = false;

  constructor({ authorities = [], idleMs = 60_000 }: HttpExchangeOptions = {}) {
    this.#authorities = authorities;
    this.#idleMs = idleMs;
  }

  /** Follows redirects of what is read. `authorization` goes to the first host and to no other. */
  async ask(first: URL, question: HttpQuestion, authorization?: string): Promise<HttpAnswer> {
    checkAddress(first);
    if (this.#closed) throw new CoppiceError('cancelled', 'the daemon was stopped meanwhile');
    let url = first;
    for (let step = 0; step <= mostRedirects; step += 1) {
      const known = url.origin === first.origin ? authorization : undefined;
      const answer = await this.#once(url, question, known);
      const location = answer.headers.location;
      const reads = question.method === undefined || question.method === 'GET' || question.method === 'HEAD';
      if (!reads || !redirects.has(answer.status) || location === undefined) return answer;
      answer.body.resume();
      const next = parse(location, url);
      checkAddress(next, url);
      url = next;
    }
    throw new CoppiceError('unavailable', `the registry ${first.host} sends us in circles`);
  }

  /** Ends what is under way, and begins nothing new. */
  close(): void {
    this.#closed = true;
    this.#plain.destroy();
    this.#tls.destroy();
  }

  async #once(url: URL, question: HttpQuestion, authorization: string | undefined): Promise<HttpAnswer> {
    const secure = url.protocol === 'https:';
    const { method = 'GET', body, signal } = question;
    const headers: Record<string, string> = { 'user-agent': 'coppice', ...question.headers };
    if (authorization !== undefined) headers.authorization = authorization;
    if (body !== undefined)
      headers['content-length'] = String(Buffer.isBuffer(body) ? body.length : body.sizeBytes);
    else if (method !== 'GET' && method !== 'HEAD') headers['content-length'] = '0';
    const options = secure
      ? { method, headers, signal, agent: this.#tls, secureContext: this.#secureContext() }
      : { method, headers, signal, agent: this.#plain };
    const answered = Promise.withResolvers<HttpAnswer>();
    const call = (secure ? tlsRequest : plainRequest)(url, options);
    call.setTimeout(this.#idleMs, () =>
      call.destroy(
        new CoppiceError('unavailable', `${url.host} sent nothing for ${this.#idleMs / 1000} seconds`),
      ),
    );
    call.on('error', (error) => answered.reject(unreachable(url, error)));
    call.on('response', (response) =>
      answered.resolve({ status: response.statusCode ?? 0, headers: response.headers, url, body: response }),
    );
    if (body === undefined || Buffer.isBuffer(body)) call.end(body);
    // The answer says why an upload was cut short; where there is none, the error of the request does.
    else pipeline(body.stream, call).catch((error: Error) => call.destroy(error));
    return answered.promise;
  }

  #secureContext(): SecureContext {
    this.#context ??= createSecureContext({
      ca: [...getCACertificates('default'), ...getCACertificates('system'), ...this.#authorities],
    });
    return this.#context;
  }
}

function parse(location: string, base: URL): URL {
  try {
    return new URL(location, base);
  } catch (cause) {
    throw new CoppiceError('unavailable', `the registry ${base.host} sends us to an address that is none`, {
      cause,
    });
  }
}

/** Whether the other side does not speak TLS at all. */
export const speaksNoTls = (error: unknown): boolean => {
  const cause =
    error instanceof CoppiceError ? (error.cause as NodeJS.ErrnoException | undefined) : undefined;
  return (
    cause?.code === 'ERR_SSL_WRONG_VERSION_NUMBER' ||
    cause?.code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG' ||
    cause?.code === 'EPROTO'
  );
};

const certificateCodes = /^(?:UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|ERR_TLS_CERT_)/;

function unreachable(url: URL, error: NodeJS.ErrnoException): CoppiceError {
  if (error instanceof CoppiceError) return error;
  if (error.name === 'AbortError')
    return new CoppiceError('cancelled', 'the call to the registry was cancelled', { cause: error });
  if (certificateCodes.test(error.code ?? ''))
    return new CoppiceError(
      'unavailable',
      `the certificate of ${url.host} is not trusted: ${error.message}`,
      {
        hint: 'Add the authority that signed it to those of this machine, or name its file in `registries` of config.json.',
        cause: error,
      },
    );
  return new CoppiceError('unavailable', `${url.host} cannot be reached: ${error.message}`, {
    hint: 'Check the name of the registry and the network of this machine, then try again.',
    cause: error,
  });
}

/** A small body, whole. */
export async function readBody(answer: HttpAnswer, mostBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > mostBytes)
        throw new CoppiceError('too_large', `${answer.url.host} answers with more than ${mostBytes} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw error instanceof CoppiceError ? error : unreachable(answer.url, error as NodeJS.ErrnoException);
  }
  return Buffer.concat(chunks);
}
