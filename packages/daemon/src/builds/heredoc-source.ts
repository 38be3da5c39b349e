import { Readable } from 'node:stream';
import type { CopySource } from './copy-files.ts';

/** A text of the Dockerfile itself as a file to copy. */
export const heredocSource = (content: string): CopySource => {
  const bytes = Buffer.from(content);
  return {
    find: async (path) => [path],
    isDirectory: async () => false,
    items: async function* () {
      yield {
        path: '',
        type: 'file',
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: new Date(0),
        size: bytes.length,
        link: '',
        content: () => Readable.from([bytes]) as AsyncIterable<Buffer>,
      };
    },
  };
};
