import { Transform, type TransformCallback } from 'node:stream';

const star = 0x2a;

/** Covers the needles in bytes that are whole, with stars, as long as they were. */
function redact(bytes: Buffer, needles: readonly Buffer[]): Buffer {
  let covered: Buffer | undefined;
  for (const needle of needles)
    for (let at = bytes.indexOf(needle); at !== -1; at = bytes.indexOf(needle, at + 1)) {
      covered ??= Buffer.from(bytes);
      covered.fill(star, at, at + needle.length);
    }
  return covered ?? bytes;
}

export const redactText = (text: string, needles: readonly Buffer[]): string =>
  redact(Buffer.from(text, 'latin1'), needles).toString('latin1');

/** The same for a stream, also where a needle comes in pieces. Holds back no more than it must: what could be the start of one. */
export class Redactor extends Transform {
  readonly #needles: readonly Buffer[];
  #held: Buffer = Buffer.alloc(0);

  constructor(needles: readonly Buffer[]) {
    super();
    this.#needles = needles;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const bytes = redact(Buffer.concat([this.#held, chunk]), this.#needles);
    const keep = this.#startLength(bytes);
    this.#held = bytes.subarray(bytes.length - keep);
    done(null, bytes.subarray(0, bytes.length - keep));
  }

  override _flush(done: TransformCallback): void {
    done(null, this.#held);
  }

  /** How many bytes at the end begin a needle. */
  #startLength(bytes: Buffer): number {
    let longest = 0;
    for (const needle of this.#needles)
      for (let size = Math.min(needle.length - 1, bytes.length); size > longest; size -= 1)
        if (bytes.subarray(bytes.length - size).equals(needle.subarray(0, size))) {
          longest = size;
          break;
        }
    return longest;
  }
}
