import { frameMaxPayload } from './wire.ts';

/** Smaller pieces get memory of their own size: kept for long, they must not hold on to four times as much. */
const leastReusedBytes = frameMaxPayload / 4;
const mostFree = 32;

/**
 * Bytes of a call as they came, copied out of the link's buffer. Whoever is done with them may release them: gigabytes of output
 * would otherwise be gigabytes of garbage, and collecting it took longer than sending it on.
 */
export class Piece {
  static readonly #free: Buffer[] = [];
  readonly stream: number;
  readonly data: Buffer;
  #memory: Buffer | undefined;

  private constructor(stream: number, data: Buffer, memory: Buffer | undefined) {
    this.stream = stream;
    this.data = data;
    this.#memory = memory;
  }

  static copy(stream: number, bytes: Buffer): Piece {
    if (bytes.length < leastReusedBytes) return new Piece(stream, Buffer.from(bytes), undefined);
    const memory = Piece.#free.pop() ?? Buffer.allocUnsafeSlow(frameMaxPayload);
    bytes.copy(memory);
    return new Piece(stream, memory.subarray(0, bytes.length), memory);
  }

  /** The data may not be looked at any more. */
  release(): void {
    if (this.#memory !== undefined && Piece.#free.length < mostFree) Piece.#free.push(this.#memory);
    this.#memory = undefined;
  }
}
