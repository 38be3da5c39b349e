import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { CoppiceError } from '@coppice/protocol';

interface Known {
  tokenId: string;
  calls: number;
}

/**
 * The connections of one server, no more than it may have. At the limit room is made by those that need it least: who has shown
 * no token yet, the oldest first, then who is known and asks for nothing. Somebody who holds connections and says nothing
 * cannot keep others out.
 */
export class Connections {
  readonly #limit: number;
  readonly #strangers = new Set<Socket>();
  readonly #idle = new Set<Socket>();
  readonly #busy = new Set<Socket>();
  readonly #all = new WeakSet<Socket>();
  readonly #known = new WeakMap<Socket, Known>();
  readonly #perToken = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#all.add(socket);
      this.#strangers.add(socket);
      socket.once('close', () => this.#forget(socket));
      this.#makeRoom(socket);
    });
  }

  /** A valid token came with this request: it is served until it is answered, or for as long as it is a WebSocket. */
  begin({ socket }: IncomingMessage, response: ServerResponse, tokenId: string): void {
    this.#count(socket, tokenId);
    const known = this.#known.get(socket);
    if (known === undefined) return;
    known.calls += 1;
    this.#strangers.delete(socket);
    this.#idle.delete(socket);
    this.#busy.add(socket);
    response.once('close', () => {
      known.calls -= 1;
      if (known.calls > 0 || !this.#busy.delete(socket)) return;
      this.#idle.add(socket);
    });
  }

  /** Whether it came through this server, also when it is closed by now. */
  had(socket: Socket): boolean {
    return this.#all.has(socket);
  }

  get size(): number {
    return this.#strangers.size + this.#idle.size + this.#busy.size;
  }

  destroyAll(): void {
    for (const sockets of [this.#strangers, this.#idle, this.#busy])
      for (const socket of sockets) socket.destroy();
  }

  /** One token gets half of the places at most. */
  #count(socket: Socket, tokenId: string): void {
    const before = this.#known.get(socket);
    if (before?.tokenId === tokenId || socket.destroyed) return;
    const mostOfOne = Math.max(1, Math.floor(this.#limit / 2));
    const held = this.#perToken.get(tokenId) ?? 0;
    if (held >= mostOfOne)
      throw new CoppiceError(
        'limit_reached',
        `this token has ${held} connections open, and may have no more`,
        {
          hint: 'Close some. How many there may be is `limits.connections` in config.json; one token may have half of them.',
        },
      );
    if (before === undefined) this.#known.set(socket, { tokenId, calls: 0 });
    else {
      this.#release(before.tokenId);
      before.tokenId = tokenId;
    }
    this.#perToken.set(tokenId, held + 1);
  }

  #makeRoom(newcomer: Socket): void {
    if (this.size <= this.#limit) return;
    const [oldestStranger] = this.#strangers;
    const [idlest] = this.#idle;
    const leaving = oldestStranger === newcomer ? (idlest ?? newcomer) : (oldestStranger ?? newcomer);
    // It counts no more from now on, though it takes a moment until it is closed.
    this.#forget(leaving);
    leaving.destroy();
  }

  #forget(socket: Socket): void {
    const known = this.#known.get(socket);
    if (known !== undefined) this.#release(known.tokenId);
    this.#known.delete(socket);
    for (const sockets of [this.#strangers, this.#idle, this.#busy]) sockets.delete(socket);
  }

  #release(tokenId: string): void {
    const left = (this.#perToken.get(tokenId) ?? 1) - 1;
    if (left > 0) this.#perToken.set(tokenId, left);
    else this.#perToken.delete(tokenId);
  }
}
