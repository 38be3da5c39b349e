import type { Duplex, Readable } from 'node:stream';
import { PassThrough } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { CoppiceError } from '@coppice/protocol';

export type ArchiveFormat = 'tar' | 'gzip' | 'zstd';

export interface OpenedArchive {
  readonly format: ArchiveFormat;
  /** From the first byte on: what was read to find the format is part of it. */
  readonly input: AsyncIterable<Buffer>;
}

const headBytes = 512;

/** Finds the format by what the stream begins with, never by a name. */
export async function openArchive(stream: Readable): Promise<OpenedArchive> {
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  let head = Buffer.alloc(0);
  while (head.length < headBytes) {
    const next = await chunks.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  return { format: detect(head), input: resume(head, chunks) };
}

async function* resume(head: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  yield head;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
}

function detect(head: Buffer): ArchiveFormat {
  const begins = (...bytes: number[]): boolean => head.subarray(0, bytes.length).equals(Buffer.from(bytes));
  if (begins(0x1f, 0x8b)) return 'gzip';
  if (begins(0x28, 0xb5, 0x2f, 0xfd)) return 'zstd';
  if (head.length >= headBytes && head.toString('latin1', 257, 262) === 'ustar') return 'tar';
  const packer = begins(0xfd, 0x37, 0x7a, 0x58, 0x5a) ? 'xz' : begins(0x42, 0x5a, 0x68) ? 'bzip2' : undefined;
  if (packer !== undefined) {
    throw new CoppiceError('unsupported', `archives packed with ${packer} cannot be imported`, {
      hint: `Unpack it first: ${packer} -dc ARCHIVE | coppice images import NAME -`,
    });
  }
  throw new CoppiceError(
    'invalid_argument',
    'this is no tar archive, neither plain nor packed with gzip or zstd',
  );
}

export function unpacker(format: ArchiveFormat): Duplex {
  if (format === 'gzip') return createGunzip();
  if (format === 'zstd') return createZstdDecompress();
  return new PassThrough();
}
