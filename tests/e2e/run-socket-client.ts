import type { RunEvent } from '@coppice/protocol';
import type { RunningDaemon } from '@coppice/testkit';

/** Follows runs over one WebSocket, and keeps what it is told. */
export class RunSocketClient {
  readonly events: RunEvent[] = [];
  readonly answers: { readonly type: string; readonly code?: string; readonly run?: string }[] = [];
  readonly #socket: WebSocket;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => {
      const message = JSON.parse(String(data)) as { type: string; event?: RunEvent };
      if (message.event === undefined) this.answers.push(message);
      else this.events.push(message.event);
    });
  }

  static async open(daemon: RunningDaemon): Promise<RunSocketClient> {
    // That of Node takes headers, which the types of browsers do not know.
    const init = { headers: { authorization: `Bearer ${daemon.token}` } } as unknown as string[];
    const socket = new WebSocket(`${daemon.url.replace('http', 'ws')}/v1/runs/socket`, init);
    const client = new RunSocketClient(socket);
    await happened(socket, 'open');
    return client;
  }

  say(message: object | string): void {
    this.#socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  of(run: string): RunEvent[] {
    return this.events.filter((event) => event.run_id === run);
  }

  async close(): Promise<void> {
    const closed = happened(this.#socket, 'close');
    this.#socket.close();
    await closed;
  }
}

const happened = (socket: WebSocket, what: 'open' | 'close'): Promise<void> =>
  new Promise((resolve, reject) => {
    socket.addEventListener(what, () => resolve(), { once: true });
    socket.addEventListener('error', () => reject(new Error('the socket failed')), { once: true });
  });
