import type { HttpCall, WholeAnswer } from '../connection/transport.ts';
import { DocumentSocket } from './document-socket.ts';
import { type Endpoint, pathPrefix } from './endpoint.ts';

const mostIdle = 64;

const mayBeRepeated = (socket: DocumentSocket, call: HttpCall, error: NodeJS.ErrnoException): boolean =>
  socket.isUsed && call.method === 'GET' && (error.code === 'ECONNRESET' || error.code === 'EPIPE');

/**
 * Calls whose body and answer are short enough to be held as a whole, which nearly all are. Node's own client takes longer for one
 * than the kernel does to start a process; it is left to the streams.
 */
export class DocumentCalls {
  readonly #endpoint: Endpoint;
  readonly #idle: DocumentSocket[] = [];

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  async call(call: HttpCall): Promise<WholeAnswer> {
    const request = this.#request(call);
    for (;;) {
      const socket = this.#take();
      try {
        const answer = await socket.exchange(request, call.signal);
        if (socket.isUsable && this.#idle.length < mostIdle) this.#idle.push(socket);
        else socket.close();
        return answer;
      } catch (error) {
        // A connection that the daemon closed while it lay idle; only calls that may be repeated are.
        if (!mayBeRepeated(socket, call, error as NodeJS.ErrnoException)) throw error;
      }
    }
  }

  close(): void {
    for (const socket of this.#idle.splice(0)) socket.close();
  }

  /** The one that was used last, so that those which are not needed grow old. */
  #take(): DocumentSocket {
    for (let socket = this.#idle.pop(); socket !== undefined; socket = this.#idle.pop()) {
      if (socket.isUsable) return socket;
      socket.close();
    }
    return new DocumentSocket(this.#endpoint);
  }

  #request({ method, path, body }: HttpCall): string {
    const { url, socketPath, token } = this.#endpoint;
    // Whoever makes a path encodes what is put into it; a line break that slipped through would begin another question.
    if (!/^[\x21-\x7e]+$/.test(path)) throw new TypeError(`not a path: ${JSON.stringify(path)}`);
    const lines = [
      `${method} ${pathPrefix(this.#endpoint)}${path} HTTP/1.1`,
      `host: ${socketPath === undefined ? url.host : 'localhost'}`,
    ];
    if (token !== undefined) lines.push(`authorization: Bearer ${token}`);
    if (body !== undefined) {
      lines.push('content-type: application/json', `content-length: ${Buffer.byteLength(body)}`);
    }
    return `${lines.join('\r\n')}\r\n\r\n${body ?? ''}`;
  }
}
