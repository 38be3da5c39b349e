import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { ScriptPlayer } from '@coppice/gateway';

/** A request of the main loop of an agent, as its vendor gets it. */
export interface Asked {
  readonly model: string;
  readonly body: string;
  readonly headers: IncomingMessage['headers'];
}

/** Says what the model of a scene answers to this request: a script of one or more steps, by the results of tools in it. */
export type Scene = (asked: Asked) => unknown;

/** Where a vendor would be: a model for each scene, in all formats, which answers by what it was asked. */
export class ModelStage implements AsyncDisposable {
  readonly asked: Asked[] = [];
  readonly #scenes = new Map<string, Scene>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** A model of this name plays the scene. */
  play(model: string, scene: Scene): void {
    this.#scenes.set(model, scene);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const { model = '', tools } = JSON.parse(body) as { model?: string; tools?: unknown[] };
    const scene = this.#scenes.get(model);
    if (request.method !== 'POST' || scene === undefined) {
      response.writeHead(404).end();
      return;
    }
    const asked = { model, body, headers: request.headers };
    const isMain = tools !== undefined && tools.length > 0;
    if (isMain) this.asked.push(asked);
    const script = isMain ? scene(asked) : { steps: [{ text: 'A title' }] };
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const played = await new ScriptPlayer(script).answer(request.url ?? '/', body, gone.signal);
    if (played === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(played.status, played.headers);
    pipeline(played.body, response, () => {});
  }
}
