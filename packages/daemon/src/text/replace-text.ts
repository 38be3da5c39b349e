import { setImmediate as turn } from 'node:timers/promises';

/** Bytes that are looked at before others have a turn. */
const turnBytes = 1 << 20;

/**
 * Finds a text in another, place by place and without overlaps (Knuth, Morris, Pratt). The search that comes with Node looks at
 * every byte again and again where both repeat themselves; this one looks at each twice at most.
 */
export class TextSearch {
  readonly #text: Buffer;
  readonly #wanted: Buffer;
  #borders: Int32Array | undefined;

  constructor(text: Buffer, wanted: Buffer) {
    this.#text = text;
    this.#wanted = wanted;
  }

  async count(): Promise<number> {
    let count = 0;
    await this.#each(() => {
      count += 1;
    });
    return count;
  }

  /** The text with the first `count` places replaced, of which there are as many. */
  async replace(by: Buffer, count: number): Promise<Buffer> {
    const text = this.#text;
    const after = Buffer.allocUnsafe(text.length + count * (by.length - this.#wanted.length));
    let [from, to, left] = [0, 0, count];
    await this.#each((start, end) => {
      if (left === 0) return;
      left -= 1;
      to += text.copy(after, to, from, start);
      to += by.copy(after, to);
      from = end;
    });
    text.copy(after, to, from);
    return after;
  }

  async #each(found: (start: number, end: number) => void): Promise<void> {
    const [text, wanted] = [this.#text, this.#wanted];
    if (wanted.length === 0 || wanted.length > text.length) return;
    this.#borders ??= await bordersOf(wanted);
    const borders = this.#borders;
    let matched = 0;
    for (let at = 0; at < text.length; at += 1) {
      if (at % turnBytes === turnBytes - 1) await turn();
      while (matched > 0 && text[at] !== wanted[matched]) matched = borders[matched - 1]!;
      if (text[at] === wanted[matched]) matched += 1;
      if (matched < wanted.length) continue;
      found(at + 1 - matched, at + 1);
      matched = 0;
    }
  }
}

/** For each beginning of the text, how much of its end is a beginning too. */
async function bordersOf(wanted: Buffer): Promise<Int32Array> {
  const borders = new Int32Array(wanted.length);
  let matched = 0;
  for (let at = 1; at < wanted.length; at += 1) {
    if (at % turnBytes === 0) await turn();
    while (matched > 0 && wanted[at] !== wanted[matched]) matched = borders[matched - 1]!;
    if (wanted[at] === wanted[matched]) matched += 1;
    borders[at] = matched;
  }
  return borders;
}
