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

/** Sends requests to upstreams, over connections that are kept. */
export class UpstreamConnections {
  readonly #http = new HttpAgent({ keepAlive: true, maxFreeSockets: 64 });
  readonly #https = new HttpsAgent({ keepAlive: true, maxFreeSockets: 64 });

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
      outgoing.on('error', (error: NodeJS.ErrnoException) => {
        clearTimeout(timer);
        // A kept connection that the other side closed at the same time takes the request with it unread.
        const wasClosed = outgoing.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
        reject(new NoAnswer(error.message, !isConnected || wasClosed, error));
      });
      outgoing.end(request.body);
    });
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }
}
