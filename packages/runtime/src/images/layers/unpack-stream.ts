import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { CoppiceError } from '@coppice/protocol';
import { unpackZstdFrames } from './zstd-frames.ts';

/** Large, as each step of a chunk through streams and threads costs the same whatever its size. */
const chunkBytes = 256 << 10;

export type Packing = 'plain' | 'gzip' | 'zstd';

/** By what it begins with, never by what somebody says of it. */
export function packingOf(head: Buffer): Packing {
  const begins = (...bytes: number[]): boolean => head.subarray(0, bytes.length).equals(Buffer.from(bytes));
  if (begins(0x1f, 0x8b)) return 'gzip';
  if (begins(0x28, 0xb5, 0x2f, 0xfd)) return 'zstd';
  // A frame that only carries notes may come first.
  if (
    head.length >= 4 &&
    (head[0]! & 0xf0) === 0x50 &&
    head.subarray(1, 4).equals(Buffer.from([0x2a, 0x4d, 0x18]))
  )
    return 'zstd';
  return 'plain';
}

/** The bytes that were packed. The source is read no further when nobody takes them any more. */
export async function* unpackStream(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  const chunks = source[Symbol.asyncIterator]();
  try {
    let head: Buffer = Buffer.alloc(0);
    while (head.length < 4) {
      const next = await chunks.next();
      if (next.done === true) break;
      head = Buffer.concat([head, next.value]);
    }
    const whole = joined(head, chunks);
    const packing = packingOf(head);
    if (packing === 'gzip') yield* unpackGzip(whole);
    else if (packing === 'zstd') yield* unpackZstdFrames(whole, chunkBytes);
    else yield* whole;
  } catch (error) {
    throw asRefusal(error);
  } finally {
    await chunks.return?.();
  }
}

async function* unpackGzip(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  const unpacking = createGunzip({ chunkSize: chunkBytes });
  const feeding = pipeline(source, unpacking);
  feeding.catch(() => {});
  yield* unpacking as AsyncIterable<Buffer>;
  await feeding;
}

async function* joined(head: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  if (head.length > 0) yield head;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
}

function asRefusal(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException;
  if (!(error instanceof Error) || !/^(?:Z_|ERR_|ZSTD_)/.test(code) || code.startsWith('ERR_STREAM'))
    return error;
  return new CoppiceError('invalid_argument', `it is damaged or cut off: ${error.message}`, { cause: error });
}
