import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** A connection that sends what it is told, byte for byte, and shows what comes back. */
export class HalfRequest implements Disposable {
  readonly socket: Socket;
  #received = '';
  #ended = false;
  #wake: () => void = () => {};

  private constructor(socket: Socket) {
    this.socket = socket;
    const wake = (): void => this.#wake();
    socket.on('data', (chunk: Buffer) => {
      this.#received += chunk.toString('latin1');
      wake();
    });
    const end = (): void => {
      this.#ended = true;
      wake();
    };
    socket.on('end', end);
    socket.on('close', end);
    // The daemon may reset a connection that it has refused: the answer came before that.
    socket.on('error', end);
  }

  /** To a URL, or to the path of a socket. */
  static async open(place: string): Promise<HalfRequest> {
    const target = place.startsWith('/')
      ? { path: place }
      : { host: new URL(place).hostname, port: Number(new URL(place).port) };
    const socket = connect({ ...target, allowHalfOpen: true });
    await once(socket, 'connect');
    return new HalfRequest(socket);
  }

  /** A request line and headers, with the empty line that ends them. */
  head(requestLine: string, headers: Readonly<Record<string, string | undefined>>): this {
    const lines = Object.entries({ host: 'localhost', ...headers })
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}: ${value}`);
    return this.send(`${[requestLine, ...lines].join('\r\n')}\r\n\r\n`);
  }

  send(data: string | Buffer): this {
    this.socket.write(data);
    return this;
  }

  get received(): string {
    return this.#received;
  }

  /** The status of the answer, once there is one; the test's own deadline is the only one. */
  async status(): Promise<number> {
    await this.#until(() => this.#received.includes('\r\n\r\n'));
    const status = /^HTTP\/1\.1 (\d{3})/.exec(this.#received)?.[1];
    if (status === undefined) throw new Error(`closed without an answer: ${this.#received.slice(0, 200)}`);
    return Number(status);
  }

  /** Settles when the daemon has closed the connection. */
  async closed(): Promise<void> {
    await this.#until(() => this.#ended);
  }

  get isClosed(): boolean {
    return this.#ended;
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition() && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
