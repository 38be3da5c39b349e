import { CoppiceError } from '@coppice/protocol';

/** Smaller documents are bounded by the number of connections. */
const smallBytes = 65_536;
const totalBytes = 256 * 1024 * 1024;
/** So that one caller leaves room for others. */
const callerBytes = totalBytes / 2;

/** The memory that documents under way take: theirs from the first byte until their call is answered. */
export class DocumentRoom {
  readonly #byCaller = new Map<string, number>();
  #taken = 0;

  /** Holds room for a document that has grown to this size, or throws rate_limited. */
  hold(caller: string, held: number, bytes: number): number {
    if (bytes <= smallBytes || bytes <= held) return held;
    const more = bytes - held;
    const own = (this.#byCaller.get(caller) ?? 0) + more;
    if (own > callerBytes || this.#taken + more > totalBytes)
      throw new CoppiceError('rate_limited', 'too many large documents are under way', {
        hint: 'Wait until other calls have been answered, then try again.',
        details: { retry_after_s: 1 },
      });
    this.#byCaller.set(caller, own);
    this.#taken += more;
    return bytes;
  }

  release(caller: string, held: number): void {
    if (held === 0) return;
    const left = (this.#byCaller.get(caller) ?? held) - held;
    if (left > 0) this.#byCaller.set(caller, left);
    else this.#byCaller.delete(caller);
    this.#taken -= held;
  }
}
