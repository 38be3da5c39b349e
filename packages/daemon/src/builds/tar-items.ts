import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import type { CopyItem } from './copy-files.ts';

/** The entries of a tar, below its top. The content of one must be read before the next one comes. */
export async function* tarItems(tar: AsyncIterable<Uint8Array>): AsyncGenerator<CopyItem, void, undefined> {
  const reader = extract();
  const pumping = pipeline(tar, reader);
  pumping.catch(() => {});
  for await (const entry of reader) {
    const { name, type, mode = 0, uid = 0, gid = 0, mtime, size = 0, linkname = '' } = entry.header;
    yield {
      path: withoutTop(name),
      type: type as CopyItem['type'],
      mode,
      uid,
      gid,
      mtime: mtime ?? new Date(0),
      size,
      link: type === 'link' ? withoutTop(linkname ?? '') : (linkname ?? ''),
      content: () => entry as AsyncIterable<Buffer>,
    };
    entry.resume();
  }
  await pumping;
}

const withoutTop = (name: string): string =>
  name
    .replace(/^(?:\.?\/)+/, '')
    .replace(/\/$/, '')
    .replace(/^\.$/, '');
