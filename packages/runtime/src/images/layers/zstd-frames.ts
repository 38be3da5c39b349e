import { pipeline } from 'node:stream/promises';
import { createZstdDecompress } from 'node:zlib';
import { CoppiceError } from '@coppice/protocol';

const frameMagic = 0xfd2fb528;
const skippableMagic = 0x184d2a50;
const dictionaryIdBytes = [0, 1, 2, 4];

/**
 * Unpacks zstd of any number of frames. Node's own stream ends with the first one, and what packs in parallel or so that parts
 * can be found again makes many.
 */
export async function* unpackZstdFrames(
  source: AsyncIterable<Buffer>,
  chunkBytes: number,
): AsyncGenerator<Buffer, void, undefined> {
  const bytes = new ByteFeed(source);
  while (!(await bytes.isAtEnd())) {
    const magic = (await bytes.take(4)).readUInt32LE();
    if ((magic & 0xfffffff0) >>> 0 === skippableMagic) {
      const length = (await bytes.take(4)).readUInt32LE();
      for await (const _ of bytes.upTo(length));
      continue;
    }
    if (magic !== frameMagic) throw damaged('something between its frames is none');
    const unpacking = createZstdDecompress({ chunkSize: chunkBytes });
    const feeding = pipeline(frameBytes(bytes), unpacking);
    // Whoever reads hears of the same error.
    feeding.catch(() => {});
    yield* unpacking as AsyncIterable<Buffer>;
    await feeding;
  }
}

/** One frame from its magic to its checksum, as the format (RFC 8878) lays it out. */
async function* frameBytes(bytes: ByteFeed): AsyncGenerator<Buffer, void, undefined> {
  const magic = Buffer.alloc(4);
  magic.writeUInt32LE(frameMagic);
  yield magic;
  const descriptor = await bytes.take(1);
  yield descriptor;
  const flags = descriptor[0]!;
  const singleSegment = (flags & 0x20) !== 0;
  const sizeFlag = flags >> 6;
  const sizeBytes = sizeFlag === 0 ? (singleSegment ? 1 : 0) : 1 << sizeFlag;
  const header = (singleSegment ? 0 : 1) + dictionaryIdBytes[flags & 3]! + sizeBytes;
  if (header > 0) yield await bytes.take(header);
  for (let last = false; !last; ) {
    const block = await bytes.take(3);
    yield block;
    const word = block.readUIntLE(0, 3);
    last = (word & 1) !== 0;
    const kind = (word >> 1) & 3;
    if (kind === 3) throw damaged('a block is of no known kind');
    // Of a repeated byte only that one is there.
    yield* bytes.upTo(kind === 1 ? 1 : word >> 3);
  }
  if ((flags & 0x04) !== 0) yield await bytes.take(4);
}

/** Takes bytes from chunks of any size. */
class ByteFeed {
  readonly #source: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async isAtEnd(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return true;
      this.#chunk = next.value;
    }
    return false;
  }

  async take(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.upTo(length)) parts.push(part);
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** In the pieces in which they come. */
  async *upTo(length: number): AsyncGenerator<Buffer, void, undefined> {
    for (let left = length; left > 0; ) {
      if (await this.isAtEnd()) throw damaged('it is cut off');
      const part = this.#chunk.subarray(0, left);
      this.#chunk = this.#chunk.subarray(part.length);
      left -= part.length;
      yield part;
    }
  }
}

const damaged = (reason: string): CoppiceError =>
  new CoppiceError('invalid_argument', `what is packed with zstd is damaged: ${reason}`);
