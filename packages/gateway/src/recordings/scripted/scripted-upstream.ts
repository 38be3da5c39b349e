import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { ScriptPlayer } from './script-player.ts';

/** What it was asked, for tests: who looks at it sees what a vendor would. */
export interface Heard {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A script at an address of its own, where a vendor would be. */
export class ScriptedUpstream implements AsyncDisposable {
  readonly #player: ScriptPlayer;
  readonly #server: Server;
  readonly #onHeard: (heard: Heard) => void;

  constructor(script: unknown, onHeard: (heard: Heard) => void = () => {}) {
    this.#player = new ScriptPlayer(script);
    this.#onHeard = onHeard;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  /** Listens on loopback; returns its address. */
  async listen(port = 0): Promise<string> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '/';
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    this.#onHeard({ path, headers: request.headers, body });
    const played = request.method === 'POST' ? await this.#player.answer(path, body) : undefined;
    if (played === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(played.status, played.headers);
    pipeline(played.body, response, () => {});
  }
}
