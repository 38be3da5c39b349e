/** As much as one read of the link brings: who sends it on has one message of it, and not one for each frame. */
const mostBytes = 256 << 10;
/** Smaller pieces get memory of their own size: kept for long, they must not hold on to eight times as much. */
const leastReusedBytes = 32 << 10;
/** As many as a reader may be behind: what is given up here is garbage, and made anew a moment later. */
const mostFree = 32;

/**
 * Bytes of a call as they came, copied out of the link's buffer. Whoever is done with them may release them: gigabytes of output
 * would otherwise be gigabytes of garbage, and collecting it took longer than sending it on.
 */
export class Piece {
  static readonly #free: Buffer[] = [];
  readonly stream: number;
  /** One byte before the data is free, for whoever sends it on with a mark of its own. */
  #memory: Buffer;
  #bytes: number;
  #released = false;

  private constructor(stream: number, memory: Buffer, bytes: number) {
    this.stream = stream;
    this.#memory = memory;
    this.#bytes = bytes;
  }

  static copy(stream: number, bytes: Buffer): Piece {
    const memory = Piece.#memoryFor(bytes.length, bytes.length);
    bytes.copy(memory, 1);
    return new Piece(stream, memory, bytes.length);
  }

  static #memoryFor(bytes: number, smallestBytes: number): Buffer {
    if (bytes < leastReusedBytes) return Buffer.allocUnsafe(1 + smallestBytes);
    return Piece.#free.pop() ?? Buffer.allocUnsafeSlow(1 + mostBytes);
  }

  /** More of the same stream, where it fits. Only before anybody has looked at the data. */
  append(bytes: Buffer): boolean {
    const total = this.#bytes + bytes.length;
    if (total > mostBytes) return false;
    if (total >= this.#memory.length) {
      // Twice as much as is needed now, so that many small ones are not copied once for each of them.
      const larger = Piece.#memoryFor(total, total * 2);
      this.#memory.copy(larger, 1, 1, 1 + this.#bytes);
      this.#memory = larger;
    }
    bytes.copy(this.#memory, 1 + this.#bytes);
    this.#bytes = total;
    return true;
  }

  get data(): Buffer {
    return this.#memory.subarray(1, 1 + this.#bytes);
  }

  /** The data behind one byte, without a copy. */
  marked(mark: number): Buffer {
    this.#memory[0] = mark;
    return this.#memory.subarray(0, 1 + this.#bytes);
  }

  /** The data may not be looked at any more. */
  release(): void {
    if (this.#released || this.#memory.length <= mostBytes || Piece.#free.length >= mostFree) return;
    this.#released = true;
    Piece.#free.push(this.#memory);
  }
}
