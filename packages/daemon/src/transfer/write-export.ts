import { createHash, type Hash } from 'node:crypto';
import { Readable } from 'node:stream';
import { createZstdCompress } from 'node:zlib';
import {
  exportMagic,
  manifestPart,
  maxRecordBytes,
  type PartDigest,
  recordHeaderBytes,
  recordKinds,
} from './export-format.ts';

const chunkBytes = 256 * 1024;

export interface ExportPart {
  readonly name: string;
  readonly content: AsyncIterable<Uint8Array>;
}

/** The bytes of an exported file, made while they are asked for: nothing is kept in memory or on a disk. */
export async function* writeExport(
  manifest: object,
  parts: readonly ExportPart[],
): AsyncGenerator<Buffer, void, undefined> {
  const whole = createHash('sha256').update(exportMagic);
  yield exportMagic;
  const source = Readable.from(records(manifest, parts), { objectMode: false });
  const packed = createZstdCompress({ chunkSize: chunkBytes });
  source.on('error', (error) => packed.destroy(error));
  source.pipe(packed);
  try {
    for await (const chunk of packed) {
      whole.update(chunk as Buffer);
      yield chunk as Buffer;
    }
  } finally {
    source.destroy();
    packed.destroy();
  }
  yield whole.digest();
}

async function* records(
  manifest: object,
  parts: readonly ExportPart[],
): AsyncGenerator<Buffer, void, undefined> {
  const digests: PartDigest[] = [];
  const described = { name: manifestPart, content: one(Buffer.from(JSON.stringify(manifest))) };
  for (const { name, content } of [described, ...parts]) {
    yield header(recordKinds.part, Buffer.byteLength(name));
    yield Buffer.from(name);
    const hash: Hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of content) {
      for (let at = 0; at < chunk.length; at += maxRecordBytes) {
        const piece = chunk.subarray(at, at + maxRecordBytes);
        hash.update(piece);
        bytes += piece.length;
        yield header(recordKinds.data, piece.length);
        yield Buffer.from(piece.buffer, piece.byteOffset, piece.length);
      }
    }
    digests.push({ name, bytes, sha256: hash.digest('hex') });
  }
  const end = Buffer.from(JSON.stringify(digests));
  yield header(recordKinds.end, end.length);
  yield end;
}

async function* one(bytes: Buffer): AsyncGenerator<Buffer, void, undefined> {
  yield bytes;
}

function header(kind: number, length: number): Buffer {
  const bytes = Buffer.alloc(recordHeaderBytes);
  bytes.writeUInt8(kind, 0);
  bytes.writeUInt32LE(length, 1);
  return bytes;
}
