import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { promisify } from 'node:util';
import { constants, createZstdDecompress, zstdDecompress } from 'node:zlib';
import { CoppiceError } from '@coppice/protocol';
import { JsonShape } from '../text/json-shape.ts';
import { ByteReader } from './byte-reader.ts';
import {
  digestBytes,
  type ExportForm,
  exportMagic,
  manifestPart,
  maxManifestBytes,
  maxPieceBytes,
  type PartDigest,
  recordHeaderBytes,
  recordKinds,
} from './export-format.ts';

const decompress = promisify(zstdDecompress);
/** A frame may ask for as much memory as a piece is long, and no more. */
const frameLimits = {
  maxOutputLength: maxPieceBytes,
  params: { [constants.ZSTD_d_windowLogMax]: Math.log2(maxPieceBytes) },
};
const readBytes = 1024 * 1024;

const hint = 'Nothing was written. Copy the file again, or export it again.';
export const damagedFile = (reason: string, cause?: unknown): CoppiceError =>
  new CoppiceError('invalid_argument', `the file is damaged or cut off: ${reason}`, { hint, cause });

/** A part of the file. Its content must be read to the end before the next one comes. */
export interface FilePart {
  readonly name: string;
  readonly content: AsyncIterable<Buffer>;
}

/** An exported file on this machine's disk that nobody else can reach. Read as often as one likes, in constant memory. */
export class ExportFile {
  readonly #path: string;
  readonly #sizeBytes: number;
  readonly #form: ExportForm;

  /** The whole was compared with its digest already. */
  constructor(path: string, { sizeBytes, form }: { sizeBytes: number; form: ExportForm }) {
    this.#path = path;
    this.#sizeBytes = sizeBytes;
    this.#form = form;
  }

  /** Its parts in order, the manifest first. At the end the digest of each that was read whole is compared with what the file says. */
  async *parts(): AsyncGenerator<FilePart, void, undefined> {
    const file = createReadStream(this.#path, {
      start: exportMagic.length,
      end: this.#sizeBytes - digestBytes - 1,
      highWaterMark: readBytes,
    });
    if (this.#form === 2) {
      yield* this.#records(new ByteReader(file, unreadable));
      return;
    }
    const unpacked = createZstdDecompress({ chunkSize: readBytes });
    file.on('error', (error) => unpacked.destroy(error));
    file.pipe(unpacked);
    try {
      yield* this.#records(new ByteReader(unpacked, unreadable));
    } finally {
      file.destroy();
      unpacked.destroy();
    }
  }

  async *#records(reader: ByteReader): AsyncGenerator<FilePart, void, undefined> {
    const found: PartDigest[] = [];
    let next = await readHeader(reader);
    while (next.kind === recordKinds.part) {
      if (next.length > 96) throw damagedFile('the name of a part');
      const name = (await reader.take(next.length)).toString();
      const part = new PartContent(reader);
      yield { name, content: part };
      if (part.next === undefined)
        throw new CoppiceError('internal', `the part ${name} was not read to its end`);
      found.push({ name, ...part.digest() });
      next = part.next;
    }
    if (next.kind !== recordKinds.end) throw damagedFile('content without a part');
    const said = (await reader.take(next.length)).toString();
    if (said !== JSON.stringify(found)) throw damagedFile('the digests of its parts do not match');
    if (!(await reader.atEnd())) throw damagedFile('something follows its end');
  }
}

/** Errors of the disk pass as they are; all others are of what was packed. */
const unreadable = (error: unknown): unknown =>
  error instanceof Error && 'syscall' in error
    ? error
    : damagedFile('it cannot be unpacked to its end', error);

interface RecordHeader {
  readonly kind: number;
  readonly length: number;
}

async function readHeader(reader: ByteReader): Promise<RecordHeader> {
  const header = await reader.take(recordHeaderBytes);
  const [kind, length] = [header.readUInt8(0), header.readUInt32LE(1)];
  if (!(Object.values(recordKinds) as number[]).includes(kind) || length > maxPieceBytes)
    throw damagedFile('a record of an unknown kind or size');
  return { kind, length };
}

class PartContent implements AsyncIterable<Buffer> {
  readonly #reader: ByteReader;
  readonly #hash = createHash('sha256');
  #bytes = 0;
  /** The record behind it, once it is read whole. */
  next: RecordHeader | undefined;

  constructor(reader: ByteReader) {
    this.#reader = reader;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      const header = await readHeader(this.#reader);
      if (header.kind !== recordKinds.data && header.kind !== recordKinds.packed) {
        this.next = header;
        return;
      }
      const held = await this.#reader.take(header.length);
      const piece = header.kind === recordKinds.data ? held : await unpackPiece(held);
      this.#hash.update(piece);
      this.#bytes += piece.length;
      yield piece;
    }
  }

  digest(): { bytes: number; sha256: string } {
    return { bytes: this.#bytes, sha256: this.#hash.digest('hex') };
  }
}

async function unpackPiece(held: Buffer): Promise<Buffer> {
  if (held.length <= 4 || held.readUInt32LE(0) > maxPieceBytes) throw damagedFile('the length of a piece');
  const piece = await decompress(held.subarray(4), frameLimits).catch((cause: unknown) => {
    throw damagedFile('a piece cannot be unpacked', cause);
  });
  if (piece.length !== held.readUInt32LE(0)) throw damagedFile('the length of a piece');
  return piece;
}

/** A manifest that is short to parse: this runs before anything in the file is known to be honest. */
export async function readManifestText(part: FilePart): Promise<string> {
  if (part.name !== manifestPart) throw damagedFile('it does not begin with its manifest');
  return (await readDocument(part)).toString();
}

/** A part that is JSON, checked to be short to parse. */
export async function readDocument(part: FilePart): Promise<Buffer> {
  const pieces: Buffer[] = [];
  const shape = new JsonShape();
  let bytes = 0;
  for await (const piece of part.content) {
    bytes += piece.length;
    if (bytes > maxManifestBytes) throw damagedFile(`its ${part.name} is too long`);
    try {
      shape.feed(piece);
    } catch (cause) {
      throw new CoppiceError('invalid_argument', `the file is refused: ${(cause as Error).message}`, {
        hint: 'Nothing was written. Export it again.',
        cause,
      });
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

export async function skip(content: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of content);
}
