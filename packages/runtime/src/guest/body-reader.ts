import { protocolError } from './wire.ts';

/** Reads what the agent sent and believes none of it: a length that does not fit is an error, never a read past the end. */
export class BodyReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  get position(): number {
    return this.#at;
  }

  u8(): number {
    return this.#bytes[this.#take(1)]!;
  }

  u16(): number {
    return this.#bytes.readUInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4));
  }

  /** A count of bytes or a time: what a JavaScript number holds exactly. */
  u64(): number {
    const value = this.#bytes.readBigUInt64LE(this.#take(8));
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw protocolError('a number is too large');
    return Number(value);
  }

  i64(): number {
    return Number(this.#bytes.readBigInt64LE(this.#take(8)));
  }

  string(): string {
    const length = this.u32();
    const at = this.#take(length + 1);
    if (this.#bytes[at + length] !== 0) throw protocolError('a string has no end');
    return this.#bytes.toString('utf8', at, at + length);
  }

  bytes(length: number): Buffer {
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  finish(): void {
    if (this.remaining !== 0) throw protocolError('an answer is longer than it should be');
  }

  #take(length: number): number {
    if (length > this.remaining) throw protocolError('an answer is too short');
    const at = this.#at;
    this.#at += length;
    return at;
  }
}
