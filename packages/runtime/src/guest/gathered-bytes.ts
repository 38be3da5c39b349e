/** Bytes put together from pieces of any size. What comes byte by byte takes no more memory than what comes in one piece. */
export class GatheredBytes {
  /** The first piece itself until a second comes: most often it is all there is. */
  #memory: Buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length);
  }

  add(piece: Buffer): void {
    if (this.#length === 0) {
      this.#memory = piece;
      this.#length = piece.length;
      return;
    }
    const length = this.#length + piece.length;
    if (length > this.#memory.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#length));
      this.#memory.copy(larger, 0, 0, this.#length);
      this.#memory = larger;
    }
    piece.copy(this.#memory, this.#length);
    this.#length = length;
  }
}
