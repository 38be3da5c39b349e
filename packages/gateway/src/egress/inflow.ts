import type { OnReadOpts, Socket } from 'node:net';

/**
 * Memory for each connection, taken as far as it is used. Large pieces are what makes large answers fast: a stream of its own would take
 * 64 KiB at a time, each in memory of its own.
 */
const pieceBytes = 256 * 1024;

/** Carries what comes from outside into a sandbox, no faster than the sandbox takes it. */
export class Inflow {
  /** For the connection to the outside. It must be paused until `into` is called, and gives its bytes to nobody else. */
  readonly reading: OnReadOpts = {
    buffer: Buffer.allocUnsafeSlow(pieceBytes),
    callback: (size, bytes) => this.#take(bytes.subarray(0, size)),
  };
  #outside: Socket | undefined;
  #inside: Socket | undefined;
  #waits = false;

  into(inside: Socket, outside: Socket): void {
    this.#inside = inside;
    this.#outside = outside;
    outside.once('end', () => inside.end());
    outside.resume();
  }

  /** False: the next piece is read when this one has left its memory. */
  #take(bytes: Uint8Array): boolean {
    const inside = this.#inside;
    if (inside === undefined || inside.destroyed) return false;
    inside.write(bytes, this.#left);
    this.#waits = inside.writableLength > 0;
    return !this.#waits;
  }

  readonly #left = (error?: Error | null): void => {
    if (!this.#waits || error) return;
    this.#waits = false;
    this.#outside?.resume();
  };
}
