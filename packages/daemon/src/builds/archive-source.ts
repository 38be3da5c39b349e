import { CoppiceError } from '@coppice/protocol';
import { unpackStream } from '@coppice/runtime';
import type { CopyItem, CopySource } from './copy-files.ts';
import { unsupportedLine } from './dockerfile/parse-dockerfile.ts';
import { tarItems } from './tar-items.ts';

const headBytes = 512;
const types: readonly string[] = ['file', 'directory', 'symlink', 'link', 'fifo'];

/**
 * What ADD takes from a local archive: its entries, where the file is a tar, plain or packed with gzip or zstd. Found by what it
 * holds, as docker does, never by its name; undefined for any other file. Entries are unpacked by the agent inside the sandbox.
 */
export async function archiveIn(
  source: CopySource,
  path: string,
  line: number,
): Promise<CopySource | undefined> {
  if (await source.isDirectory(path)) return undefined;
  const file = await firstOf(source.items(path));
  if (file?.type !== 'file') return undefined;
  const packer = unreadable(await begin(file.content(), 6));
  if (packer !== undefined) {
    // What is in it cannot be seen here; a name tells that it is an archive.
    if (!/\.(?:tar\.\w+|t[bx]z2?)$/i.test(path)) return undefined;
    throw unsupportedLine(
      line,
      `ADD of ${path}, an archive packed with ${packer},`,
      'Pack it with gzip or zstd.',
    );
  }
  const head = await begin(unpackStream(bufferOf(file.content())), headBytes).catch(() => Buffer.alloc(0));
  if (head.length < headBytes || head.toString('latin1', 257, 262) !== 'ustar') return undefined;
  return {
    describesTop: true,
    find: (pattern) => Promise.resolve([pattern]),
    isDirectory: () => Promise.resolve(true),
    items: async function* () {
      for await (const item of tarItems(unpackStream(bufferOf(file.content())))) {
        if (!types.includes(item.type))
          throw new CoppiceError(
            'unsupported',
            `line ${line} of the Dockerfile: ${path} holds ${item.path}, a ${item.type}`,
            {
              hint: 'Pack the archive without it: devices are made by the sandbox itself.',
            },
          );
        yield item;
      }
    },
  };
}

const firstOf = async (items: AsyncIterable<CopyItem>): Promise<CopyItem | undefined> => {
  for await (const item of items) return item;
  return undefined;
};

/** As many of the first bytes as there are, up to a number. The rest is not read. */
async function begin(bytes: AsyncIterable<Uint8Array>, most: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of bytes) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= most) break;
  }
  return Buffer.concat(chunks).subarray(0, most);
}

async function* bufferOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void, undefined> {
  for await (const chunk of bytes) yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
}

const unreadable = (head: Buffer): string | undefined => {
  const begins = (...bytes: number[]): boolean => head.subarray(0, bytes.length).equals(Buffer.from(bytes));
  if (begins(0xfd, 0x37, 0x7a, 0x58, 0x5a)) return 'xz';
  return begins(0x42, 0x5a, 0x68) ? 'bzip2' : undefined;
};
