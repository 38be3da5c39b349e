import { CoppiceError } from '@coppice/protocol';
import { requestMaxBytes } from './wire.ts';

/** Builds the body of a request: little-endian numbers, strings with their length and a terminating NUL. */
export class BodyWriter {
  readonly #parts: Buffer[] = [];
  #length = 0;

  u8(value: number): this {
    return this.#push(Buffer.of(value & 0xff));
  }

  u16(value: number): this {
    const part = Buffer.allocUnsafe(2);
    part.writeUInt16LE(value);
    return this.#push(part);
  }

  u32(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeUInt32LE(value);
    return this.#push(part);
  }

  u64(value: number | bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigUInt64LE(BigInt(value));
    return this.#push(part);
  }

  string(value: string, what: string): this {
    if (value.includes('\0')) throw new CoppiceError('invalid_argument', `${what} contains a NUL character`);
    const length = Buffer.byteLength(value);
    const part = Buffer.allocUnsafe(4 + length + 1);
    part.writeUInt32LE(length, 0);
    part.write(value, 4);
    part[4 + length] = 0;
    return this.#push(part);
  }

  bytes(value: Uint8Array): this {
    return this.u32(value.length).#push(Buffer.from(value));
  }

  finish(): Buffer {
    if (this.#length > requestMaxBytes - 64) {
      throw new CoppiceError(
        'too_large',
        `a request of ${this.#length} bytes is more than the sandbox takes`,
        {
          hint: 'Pass less in arguments and environment (4 MiB together), and put the rest into a file.',
        },
      );
    }
    return Buffer.concat(this.#parts, this.#length);
  }

  #push(part: Buffer): this {
    this.#parts.push(part);
    this.#length += part.length;
    return this;
  }
}
