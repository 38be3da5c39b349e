import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';

export interface UpstreamRequest {
  readonly url: string;
  readonly headers: Record<string, string | string[]>;
  readonly body: Buffer;
  readonly firstByteTimeoutMs: number;
  readonly signal: AbortSignal;
}

/** No answer came. */
export class NoAnswer extends Error {
  /** Nothing of the request can have been understood, so nothing was billed. */
  readonly isUnsent: boolean;

  constructor(message: string, isUnsent: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = 'NoAnswer';
    this.isUnsent = isUnsent;
  }
}

/** Idle ones are closed before most servers would: a request that crosses with that is lost, and may count as billed. */
const kept = { keepAlive: true, maxFreeSockets: 64, timeout: 30_000 };

/** Sends requests to upstreams, over connections that are kept. */
export class UpstreamConnections {
  readonly #http = new HttpAgent(kept);
  readonly #https = new HttpsAgent(kept);

  /** Resolves with the head of the answer; its body is the caller's to read or to destroy. */
  send(request: UpstreamRequest): Promise<IncomingMessage> {
    const isTls = request.url.startsWith('https:');
    return new Promise((resolve, reject) => {
      const outgoing = (isTls ? httpsRequest : httpRequest)(request.url, {
        method: 'POST',
        headers: request.headers,
        agent: isTls ? this.#https : this.#http,
        signal: request.signal,
      });
      let isConnected = false;
      outgoing.once('socket', (socket) => {
        if (!socket.connecting) isConnected = true;
        else socket.once(isTls ? 'secureConnect' : 'connect', () => (isConnected = true));
      });
      const timer = setTimeout(() => {
        outgoing.destroy(new Error('it sent no answer in time'));
      }, request.firstByteTimeoutMs);
      outgoing.once('response', (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      outgoing.on('error', (error) => {
        clearTimeout(timer);
        reject(new NoAnswer(error.message, !isConnected, error));
      });
      outgoing.end(request.body);
    });
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }
}
