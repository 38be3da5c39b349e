import type { Readable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';
import { packingOf, unpackStream } from './layers/unpack-stream.ts';

export type ArchiveFormat = 'tar' | 'gzip' | 'zstd';

export interface OpenedArchive {
  readonly format: ArchiveFormat;
  /** Unpacked, from the first byte on. */
  readonly tar: AsyncIterable<Buffer>;
}

const headBytes = 512;

/** Finds the format by what the stream begins with, never by a name. */
export async function openArchive(stream: Readable): Promise<OpenedArchive> {
  const { head, whole } = await peek(stream as AsyncIterable<Buffer>, () => headBytes);
  const packing = packingOf(head);
  if (packing === 'plain') checkTar(head);
  return { format: packing === 'plain' ? 'tar' : packing, tar: unpackStream(whole) };
}

/** Reads until there are as many bytes as are wanted, or no more come; `whole` begins with them again. */
export async function peek(
  source: AsyncIterable<Buffer>,
  wanted: (head: Buffer) => number,
): Promise<{ head: Buffer; whole: AsyncIterable<Buffer> }> {
  const chunks = source[Symbol.asyncIterator]();
  let head: Buffer = Buffer.alloc(0);
  while (head.length < wanted(head)) {
    const next = await chunks.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  return { head, whole: resume(head, chunks) };
}

async function* resume(head: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  try {
    if (head.length > 0) yield head;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}

function checkTar(head: Buffer): void {
  const begins = (...bytes: number[]): boolean => head.subarray(0, bytes.length).equals(Buffer.from(bytes));
  if (head.length >= headBytes && head.toString('latin1', 257, 262) === 'ustar') return;
  const packer = begins(0xfd, 0x37, 0x7a, 0x58, 0x5a) ? 'xz' : begins(0x42, 0x5a, 0x68) ? 'bzip2' : undefined;
  if (packer !== undefined) {
    throw new CoppiceError('unsupported', `archives packed with ${packer} cannot be imported`, {
      hint: `Unpack it first: ${packer} -dc ARCHIVE | coppice images import - NAME`,
    });
  }
  throw new CoppiceError(
    'invalid_argument',
    'this is no tar archive, neither plain nor packed with gzip or zstd',
  );
}

/** What the readers of tar, gzip and zstd say about bytes that are none; errors of the filesystem pass as they are. */
export function asRefusal(error: unknown): unknown {
  if (error instanceof CoppiceError || !(error instanceof Error)) return error;
  if (error.name === 'AbortError' || 'syscall' in error) return error;
  return new CoppiceError('invalid_argument', `the archive is damaged or cut off: ${error.message}`, {
    cause: error,
  });
}
