import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { zstdCompress } from 'node:zlib';
import {
  exportMagic,
  manifestPart,
  maxPieceBytes,
  type PartDigest,
  recordHeaderBytes,
  recordKinds,
} from './export-format.ts';

const compress = promisify(zstdCompress);

export interface ExportPart {
  readonly name: string;
  readonly content: AsyncIterable<Uint8Array>;
  /** False for what is packed already. */
  readonly packs: boolean;
}

/** The bytes of an exported file, made while they are asked for: no more than a few pieces are in memory, and none on a disk. */
export async function* writeExport(
  manifest: object,
  parts: readonly ExportPart[],
): AsyncGenerator<Buffer, void, undefined> {
  const whole = createHash('sha256').update(exportMagic);
  yield exportMagic;
  for await (const chunk of inOrder(records(manifest, parts))) {
    whole.update(chunk);
    yield chunk;
  }
  yield whole.digest();
}

/** Node packs on its own few threads, each piece on one of them. Pieces leave in the order in which they came. */
async function* inOrder(
  records: AsyncIterable<() => Promise<Buffer>>,
): AsyncGenerator<Buffer, void, undefined> {
  const most = availableParallelism() + 1;
  const running: Promise<Buffer>[] = [];
  for await (const record of records) {
    const made = record();
    // Awaited in its turn; a failure before that is not unheard.
    made.catch(() => {});
    running.push(made);
    if (running.length >= most) yield await running.shift()!;
  }
  for (const made of running) yield await made;
}

async function* records(
  manifest: object,
  parts: readonly ExportPart[],
): AsyncGenerator<() => Promise<Buffer>, void, undefined> {
  const digests: PartDigest[] = [];
  const text = Buffer.from(JSON.stringify(manifest));
  const described: ExportPart = { name: manifestPart, content: one(text), packs: false };
  for (const { name, content, packs } of [described, ...parts]) {
    yield () => Promise.resolve(record(recordKinds.part, Buffer.from(name)));
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const piece of pieces(content)) {
      hash.update(piece);
      bytes += piece.length;
      yield packs ? () => packed(piece) : () => Promise.resolve(record(recordKinds.data, piece));
    }
    digests.push({ name, bytes, sha256: hash.digest('hex') });
  }
  yield () => Promise.resolve(record(recordKinds.end, Buffer.from(JSON.stringify(digests))));
}

async function packed(piece: Buffer): Promise<Buffer> {
  const frame = await compress(piece);
  if (frame.length + 4 >= piece.length) return record(recordKinds.data, piece);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(piece.length);
  return record(recordKinds.packed, length, frame);
}

/** The same bytes in pieces of one size, but for the last. */
async function* pieces(content: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void, undefined> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  for await (const chunk of content) {
    for (let at = 0; at < chunk.length; ) {
      const taken = chunk.subarray(at, at + maxPieceBytes - heldBytes);
      held.push(taken);
      heldBytes += taken.length;
      at += taken.length;
      if (heldBytes < maxPieceBytes) continue;
      yield Buffer.concat(held);
      held = [];
      heldBytes = 0;
    }
  }
  if (heldBytes > 0) yield Buffer.concat(held);
}

async function* one(bytes: Buffer): AsyncGenerator<Buffer, void, undefined> {
  yield bytes;
}

function record(kind: number, ...contents: Buffer[]): Buffer {
  const header = Buffer.alloc(recordHeaderBytes);
  header.writeUInt8(kind, 0);
  header.writeUInt32LE(
    contents.reduce((total, { length }) => total + length, 0),
    1,
  );
  return Buffer.concat([header, ...contents]);
}
