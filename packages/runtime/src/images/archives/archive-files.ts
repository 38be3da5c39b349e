import { posix } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol';
import { extract } from 'tar-stream';
import { asRefusal } from '../archive-format.ts';
import type { BlobStore } from '../oci/blob-store.ts';

export interface ArchiveLimits {
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

interface ArchivedFile {
  readonly digest: string;
  readonly size: number;
}

const mostFiles = 10_000;
const mostLinks = 8;
const mostDocumentBytes = 8 << 20;

/** The files of an archive of images. Each of them is in the blob store, under the digest that it really has. */
export class ArchiveFiles {
  readonly #files = new Map<string, ArchivedFile>();
  readonly #links = new Map<string, string>();
  readonly #blobs: BlobStore;

  private constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  /** Takes all files in: what stands for what is often said by the last of them. */
  static async take(
    tar: AsyncIterable<Buffer>,
    blobs: BlobStore,
    limits: ArchiveLimits,
  ): Promise<ArchiveFiles> {
    const files = new ArchiveFiles(blobs);
    try {
      await files.#take(tar, limits);
      return files;
    } catch (error) {
      throw asRefusal(error);
    }
  }

  async #take(tar: AsyncIterable<Buffer>, limits: ArchiveLimits): Promise<void> {
    const reader = extract();
    const pumping = pipeline(tar, reader, { signal: limits.signal });
    pumping.catch(() => {});
    let bytes = 0;
    let count = 0;
    for await (const entry of reader) {
      const { name, type, size = 0, linkname = '' } = entry.header;
      const path = posix.normalize(name).replace(/\/$/, '');
      count += 1;
      if (count > mostFiles) throw tooLarge(`it has more than ${mostFiles} files`);
      if (type === 'file' || type === 'contiguous-file') {
        bytes += size;
        if (bytes > limits.maxBytes) throw tooLarge(`it holds more than ${limits.maxBytes} bytes`);
        this.#files.set(path, await this.#blobs.add(entry as AsyncIterable<Buffer>, limits.signal));
        continue;
      }
      if (type === 'symlink') this.#links.set(path, posix.join(posix.dirname(path), linkname));
      else if (type === 'link') this.#links.set(path, posix.normalize(linkname));
      entry.resume();
    }
    await pumping;
  }

  /** Links lead to other files of the archive, and nowhere else. */
  find(path: string): ArchivedFile | undefined {
    let at = posix.normalize(path);
    for (let step = 0; step <= mostLinks; step += 1) {
      const file = this.#files.get(at);
      if (file !== undefined) return file;
      const link = this.#links.get(at);
      if (link === undefined) return undefined;
      at = link;
    }
    return undefined;
  }

  need(path: string): ArchivedFile {
    const file = this.find(path);
    if (file !== undefined) return file;
    throw new CoppiceError(
      'invalid_argument',
      `the archive names ${JSON.stringify(path.slice(0, 200))} and does not hold it`,
      { hint: 'Nothing of it was kept. It may have been cut off: make it again.' },
    );
  }

  /** One of the documents; null where there is none. */
  async document(path: string): Promise<Buffer | null> {
    const file = this.find(path);
    if (file === undefined) return null;
    if (file.size > mostDocumentBytes) throw tooLarge(`${path} has ${file.size} bytes`);
    return this.#blobs.readSmall(file.digest);
  }
}

const tooLarge = (why: string): CoppiceError =>
  new CoppiceError('too_large', `the archive is refused: ${why}`, { hint: 'Nothing of it was kept.' });
