const slabBytes = 1024 * 1024;
/** A read into less than this is not worth a call. */
const leastReadBytes = 64 * 1024;
const mostFree = 8;

interface Slab {
  readonly memory: Buffer;
  /** Messages in it that somebody may still look at. */
  lent: number;
  /** No message that is still to come begins in it. */
  passed: boolean;
}

const newSlab = (): Slab => ({ memory: Buffer.allocUnsafeSlow(slabBytes), lent: 0, passed: false });

/**
 * What a connection reads into. Messages lie in it as they came; memory whose messages were all released is used again. Gigabytes of
 * output would otherwise be gigabytes of garbage, and collecting it took longer than receiving it. What is never released is
 * left to the garbage collector.
 */
export class ReadMemory {
  readonly #slabs = new WeakMap<ArrayBufferLike, Slab>();
  readonly #free: Slab[] = [];
  /** Full ones that may hold the beginning of a message whose end has not come. */
  readonly #behind: Slab[] = [];
  #current = this.#take();
  #takenBytes = 0;
  #filledBytes = 0;

  /** Where the next read goes. */
  next(): Buffer {
    if (slabBytes - this.#filledBytes < leastReadBytes) {
      const { memory } = this.#current;
      this.#behind.push(this.#current);
      this.#current = this.#take();
      // What waits for its end goes along, so that both lie side by side.
      this.#filledBytes = memory.copy(this.#current.memory, 0, this.#takenBytes, this.#filledBytes);
      this.#takenBytes = 0;
    }
    return this.#current.memory.subarray(this.#filledBytes);
  }

  /** What the read has brought, behind what waits. */
  filled(bytes: number): Buffer {
    this.#filledBytes += bytes;
    return this.#current.memory.subarray(this.#takenBytes, this.#filledBytes);
  }

  /** The first bytes of that, which wait no longer. */
  taken(bytes: number): Buffer {
    const start = this.#takenBytes;
    this.#takenBytes += bytes;
    return this.#current.memory.subarray(start, this.#takenBytes);
  }

  /**
   * Called with each message in the order of their ends, so what was read before the end of this one is of no further use to
   * the connection. Returns what gives the memory of the message back.
   */
  lend(message: Buffer): () => void {
    const slab = this.#slabs.get(message.buffer);
    if (slab !== undefined) slab.lent += 1;
    for (const behind of this.#behind.splice(0)) {
      behind.passed = true;
      this.#reuse(behind);
    }
    let given = slab === undefined;
    return () => {
      if (given) return;
      given = true;
      slab!.lent -= 1;
      this.#reuse(slab!);
    };
  }

  #take(): Slab {
    const slab = this.#free.pop() ?? newSlab();
    slab.passed = false;
    this.#slabs.set(slab.memory.buffer, slab);
    return slab;
  }

  #reuse(slab: Slab): void {
    if (slab.passed && slab.lent === 0 && this.#free.length < mostFree) this.#free.push(slab);
  }
}
