const lineFeed = 0x0a;

/**
 * Leaves out events of a stream that the client did not ask for. A line is held back until it ends, or until it is too
 * long to be one of those.
 */
export class EventFilter {
  readonly #isLeftOut: (line: string) => boolean;
  readonly #maxHeldBytes: number;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #passesLine = false;
  #afterLeftOut = false;

  constructor(isLeftOut: (line: string) => boolean, maxHeldBytes = 16 * 1024) {
    this.#isLeftOut = isLeftOut;
    this.#maxHeldBytes = maxHeldBytes;
  }

  /** What may go on now. */
  feed(chunk: Buffer): Buffer {
    const out: Buffer[] = [];
    let from = 0;
    while (from < chunk.length) {
      const feed = chunk.indexOf(lineFeed, from);
      const end = feed === -1 ? chunk.length : feed + 1;
      const part = chunk.subarray(from, end);
      from = end;
      if (this.#passesLine) out.push(part);
      else this.#hold(part, out);
      if (feed === -1) continue;
      if (!this.#passesLine) this.#endLine(out);
      this.#passesLine = false;
    }
    return out.length === 1 ? out[0]! : Buffer.concat(out);
  }

  end(): Buffer {
    const rest = Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    return rest;
  }

  #hold(part: Buffer, out: Buffer[]): void {
    this.#held.push(part);
    this.#heldBytes += part.length;
    if (this.#heldBytes <= this.#maxHeldBytes) return;
    out.push(this.end());
    this.#passesLine = true;
  }

  #endLine(out: Buffer[]): void {
    const line = this.end();
    const text = line.toString('utf8').trimEnd();
    // The empty line that ends an event which is left out goes with it.
    if (this.#afterLeftOut && text === '') {
      this.#afterLeftOut = false;
      return;
    }
    this.#afterLeftOut = this.#isLeftOut(text);
    if (!this.#afterLeftOut) out.push(line);
  }
}
