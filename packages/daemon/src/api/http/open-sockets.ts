import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** Every connection of some servers, those that became WebSockets included: a server by itself would wait for them. */
export class OpenSockets {
  readonly #sockets = new Set<Socket>();

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  /** Waits for the close, and after the grace ends what still talks. */
  async endWith(closing: Promise<unknown>, graceMs: number): Promise<void> {
    const timer = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, graceMs);
    try {
      await closing;
    } finally {
      clearTimeout(timer);
    }
  }
}
