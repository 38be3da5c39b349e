import { readFileSync } from 'node:fs';

const types = { shared: 3 };
const segments = { load: 1, dynamic: 2, interpreter: 3, stack: 0x6474e551, relro: 0x6474e552 };
const flags = { executable: 1, writable: 2 };
const tags = { end: 0n, flags: 30n, flags1: 0x6ffffffbn };
const bindNow = { flags: 8n, flags1: 1n };

interface Segment {
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly size: number;
}

/** A program for 64 bits as its file says how the kernel is to load it. */
export class ElfProgram {
  readonly #bytes: Buffer;
  readonly #segments: readonly Segment[];

  constructor(path: string) {
    const bytes = readFileSync(path);
    if (bytes.subarray(0, 5).toString('latin1') !== '\x7fELF\x02') throw new Error(`${path} is no program`);
    this.#bytes = bytes;
    const [first, size, count] = [bytes.readBigUInt64LE(32), bytes.readUInt16LE(54), bytes.readUInt16LE(56)];
    this.#segments = Array.from({ length: count }, (_, at) => {
      const place = Number(first) + at * size;
      return {
        type: bytes.readUInt32LE(place),
        flags: bytes.readUInt32LE(place + 4),
        offset: Number(bytes.readBigUInt64LE(place + 8)),
        size: Number(bytes.readBigUInt64LE(place + 32)),
      };
    });
  }

  /** What of the ways to make an attack harder it lacks. */
  missing(): string[] {
    const has = (type: number): boolean => this.#segments.some((segment) => segment.type === type);
    const stack = this.#segments.find(({ type }) => type === segments.stack);
    const findings: [boolean, string][] = [
      [this.#bytes.readUInt16LE(16) === types.shared, 'can be loaded at any address'],
      [!has(segments.interpreter), 'is static'],
      [stack !== undefined && (stack.flags & flags.executable) === 0, 'a stack that is not executable'],
      [has(segments.relro), 'relocations that are read-only'],
      [this.#bindsNow(), 'all functions bound at the start'],
      [!this.#segments.some(isWritableCode), 'no code that can be written to'],
    ];
    return findings.filter(([holds]) => !holds).map(([, what]) => what);
  }

  /** Whether a name stands anywhere in it, as that of a function or of an option of the compiler. */
  mentions(name: string): boolean {
    return this.#bytes.includes(name);
  }

  #bindsNow(): boolean {
    const dynamic = this.#segments.find(({ type }) => type === segments.dynamic);
    if (dynamic === undefined) return false;
    for (let at = dynamic.offset; at < dynamic.offset + dynamic.size; at += 16) {
      const [tag, value] = [this.#bytes.readBigUInt64LE(at), this.#bytes.readBigUInt64LE(at + 8)];
      if (tag === tags.end) break;
      if (tag === tags.flags && (value & bindNow.flags) !== 0n) return true;
      if (tag === tags.flags1 && (value & bindNow.flags1) !== 0n) return true;
    }
    return false;
  }
}

const isWritableCode = ({ type, flags: mode }: Segment): boolean =>
  type === segments.load && (mode & flags.writable) !== 0 && (mode & flags.executable) !== 0;
