import { createHash } from 'node:crypto';
import { zstdDecompressSync } from 'node:zlib';
import {
  digestBytes,
  exportMagic,
  recordHeaderBytes,
  recordKinds,
} from '../../../packages/daemon/src/transfer/export-format.ts';
import type { ExportManifest } from '../../../packages/daemon/src/transfer/export-manifest.ts';
import { writeExport } from '../../../packages/daemon/src/transfer/write-export.ts';

export const collect = async (stream: AsyncIterable<Uint8Array>): Promise<Buffer> => {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
};

export interface NamedBytes {
  readonly name: string;
  readonly bytes: Buffer;
}

/** Everything in an exported file, its manifest first. */
export const partsOf = (file: Buffer): NamedBytes[] => {
  const records = file.subarray(exportMagic.length, -digestBytes);
  const parts: { name: string; pieces: Buffer[] }[] = [];
  for (let at = 0; at < records.length; ) {
    const end = at + recordHeaderBytes + records.readUInt32LE(at + 1);
    const content = records.subarray(at + recordHeaderBytes, end);
    const kind = records[at];
    if (kind === recordKinds.part) parts.push({ name: content.toString(), pieces: [] });
    else if (kind === recordKinds.data) parts.at(-1)!.pieces.push(content);
    else if (kind === recordKinds.packed) parts.at(-1)!.pieces.push(zstdDecompressSync(content.subarray(4)));
    at = end;
  }
  return parts.map(({ name, pieces }) => ({ name, bytes: Buffer.concat(pieces) }));
};

/** As a stream. */
export async function* streamOf(bytes: Buffer) {
  yield bytes;
}

/** A file whose digests all match, whatever it holds. */
export const fileOf = (manifest: object, parts: readonly NamedBytes[]): Promise<Buffer> =>
  collect(
    writeExport(
      manifest,
      parts.map(({ name, bytes }) => ({ name, content: streamOf(bytes), packs: true })),
    ),
  );

/** The same file with another manifest, and all digests right. */
export const editManifest = (file: Buffer, edit: (manifest: ExportManifest) => unknown): Promise<Buffer> => {
  const [described, ...parts] = partsOf(file);
  const manifest = JSON.parse(described!.bytes.toString()) as ExportManifest;
  edit(manifest);
  return fileOf(manifest, parts);
};

/** The whole digest put right again. */
export const resealed = (file: Buffer): Buffer => {
  const body = file.subarray(0, -digestBytes);
  return Buffer.concat([body, createHash('sha256').update(body).digest()]);
};
