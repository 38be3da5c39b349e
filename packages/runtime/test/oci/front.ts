import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
}

/** True when it has answered itself; otherwise the call goes on to what stands behind. */
export type Intercept = (call: IncomingMessage, answer: ServerResponse) => boolean;

/** Stands before a registry on the loopback, sees every call and may answer in its place. */
export class Front {
  readonly host: string;
  readonly seen: SeenRequest[];
  readonly #close: () => void;

  private constructor(host: string, seen: SeenRequest[], close: () => void) {
    this.host = host;
    this.seen = seen;
    this.#close = close;
  }

  static async start(behind: string, intercept: Intercept = () => false): Promise<Front> {
    const seen: SeenRequest[] = [];
    const server = createServer((call, answer) => {
      seen.push({ method: call.method ?? '', path: call.url ?? '', headers: call.headers });
      if (intercept(call, answer)) return;
      const [hostname, port] = behind.split(':');
      const onward = request(
        { hostname, port, method: call.method, path: call.url, headers: call.headers },
        (response) => {
          answer.writeHead(response.statusCode ?? 502, response.headers);
          response.pipe(answer);
        },
      );
      onward.on('error', () => answer.destroy());
      call.pipe(onward);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    return new Front(`127.0.0.1:${port}`, seen, () => {
      server.close();
      server.closeAllConnections();
    });
  }

  [Symbol.dispose](): void {
    this.#close();
  }
}
