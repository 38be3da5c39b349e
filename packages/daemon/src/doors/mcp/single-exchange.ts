import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import {
  classifyInboundRequest,
  isJSONRPCErrorResponse,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  SUPPORTED_PROTOCOL_VERSIONS,
  type Transport,
} from '@modelcontextprotocol/server';

/** Clients give up on an answer without headers after some minutes; and something in between may on a silent stream. */
const streamAfterMs = 10_000;
const keepAliveMs = 15_000;

export interface SingleExchangeOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly streamAfterMs?: number;
}

/** The request, where it is one alone and of a revision that this serves; everything else is for the library's handler. */
export const asSingleRequest = (
  httpMethod: string,
  headers: IncomingHttpHeaders,
  body: unknown,
): JSONRPCRequest | undefined => {
  const version = headers['mcp-protocol-version'];
  const accept = headers.accept ?? '';
  if (httpMethod !== 'POST' || !isJSONRPCRequest(body)) return undefined;
  if (!accept.includes('application/json') || !accept.includes('text/event-stream')) return undefined;
  if (!/^application\/json\s*(;|$)/i.test(headers['content-type'] ?? '')) return undefined;
  if (Array.isArray(version)) return undefined;
  if (version !== undefined && !SUPPORTED_PROTOCOL_VERSIONS.includes(version)) return undefined;
  const found = classifyInboundRequest({
    httpMethod,
    body,
    ...(version === undefined ? {} : { protocolVersionHeader: version }),
  });
  return found.kind === 'legacy' ? body : undefined;
};

/**
 * One request and its answer over HTTP, for revisions before the current one: plain JSON, or a stream of events as soon as
 * there is more to say than the answer, or it takes long. The library streams each of them through the web's classes,
 * which takes longer than most calls.
 */
export class SingleExchange implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: NonNullable<Transport['onmessage']>;
  readonly hasPerRequestStream = true;
  readonly #response: ServerResponse;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #streamAfterMs: number;
  readonly #over = Promise.withResolvers<void>();
  #timer: NodeJS.Timeout | undefined;
  #isStream = false;
  #closed = false;

  constructor(response: ServerResponse, options: SingleExchangeOptions = {}) {
    this.#response = response;
    this.#headers = options.headers ?? {};
    this.#streamAfterMs = options.streamAfterMs ?? streamAfterMs;
  }

  async start(): Promise<void> {}

  /** Until it is answered, or the caller is gone. */
  async serve(request: JSONRPCRequest): Promise<void> {
    this.#response.once('close', () => void this.close());
    this.#timer = setTimeout(() => this.#openStream(), this.#streamAfterMs);
    this.onmessage?.(request);
    await this.#over.promise;
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (this.#closed) return;
    const isAnswer = isJSONRPCResultResponse(message) || isJSONRPCErrorResponse(message);
    if (isAnswer && !this.#isStream) {
      const text = JSON.stringify(message);
      this.#response.writeHead(200, {
        ...this.#headers,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(text),
      });
      this.#response.end(text);
    } else {
      this.#openStream();
      this.#response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
      if (isAnswer) this.#response.end();
    }
    if (isAnswer) await this.close();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#over.resolve();
    this.onclose?.();
  }

  #openStream(): void {
    if (this.#isStream) return;
    this.#isStream = true;
    clearTimeout(this.#timer);
    this.#response.writeHead(200, {
      ...this.#headers,
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    });
    this.#response.flushHeaders();
    this.#timer = setInterval(() => this.#response.write(': still at it\n\n'), keepAliveMs);
  }
}
