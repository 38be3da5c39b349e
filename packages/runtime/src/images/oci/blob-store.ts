import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { Descriptor } from './image-manifest.ts';
import { damagedBlob } from './registry-client.ts';

/** Where the bytes of a blob come from, from an offset on or from the beginning. */
export interface BlobSource {
  readonly host: string;
  open(offset: number): Promise<{ readonly bytes: AsyncIterable<Buffer>; readonly offset: number }>;
}

export interface FetchOptions {
  readonly signal?: AbortSignal | undefined;
  /** Of the whole, as it grows; starts again where a source cannot go on. */
  readonly onBytes?: (done: number) => void;
}

const partialPrefix = '.partial-';
const mostFailures = 4;
const pauseMs = 500;

/**
 * The packed layers of images as files, each under its digest. A file with that name is whole and was checked; what is on its
 * way in has another name, and a download that was cut goes on from there.
 */
export class BlobStore {
  readonly #directory: string;
  readonly #fetching = new Map<string, Promise<void>>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  path(digest: string): string {
    return join(this.#directory, nameOf(digest));
  }

  async has({ digest, size }: Descriptor): Promise<boolean> {
    const found = await stat(this.path(digest)).catch(() => undefined);
    return found?.size === size;
  }

  read(digest: string): AsyncIterable<Buffer> {
    return createReadStream(this.path(digest), { highWaterMark: 1 << 20 });
  }

  readSmall(digest: string): Promise<Buffer> {
    return readFile(this.path(digest));
  }

  /** Two that want the same wait for one download. */
  async fetch(blob: Descriptor, source: BlobSource, options: FetchOptions = {}): Promise<void> {
    if (await this.has(blob)) return;
    const running = this.#fetching.get(blob.digest);
    if (running !== undefined) {
      await running.catch(() => {});
      return this.fetch(blob, source, options);
    }
    const fetching = this.#fetch(blob, source, options).finally(() => this.#fetching.delete(blob.digest));
    this.#fetching.set(blob.digest, fetching);
    return fetching;
  }

  /** Takes bytes whose digest is not known yet; returns what they are. */
  async add(bytes: AsyncIterable<Buffer>, signal?: AbortSignal): Promise<{ digest: string; size: number }> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const draft = join(this.#directory, `${partialPrefix}new-${process.pid}-${performance.now()}`);
    const hash = createHash('sha256');
    let size = 0;
    const file = await open(draft, 'wx', 0o600);
    try {
      for await (const chunk of bytes) {
        signal?.throwIfAborted();
        hash.update(chunk);
        await writeWhole(file, chunk, size);
        size += chunk.length;
      }
      await file.close();
      const digest = `sha256:${hash.digest('hex')}`;
      await rename(draft, this.path(digest));
      return { digest, size };
    } catch (error) {
      await file.close().catch(() => {});
      await rm(draft, { force: true });
      throw error;
    }
  }

  async usedBytes(): Promise<number> {
    const names = await readdir(this.#directory).catch(none);
    const sizes = await Promise.all(
      names.map((name) => stat(join(this.#directory, name)).catch(() => undefined)),
    );
    return sizes.reduce((total, found) => total + (found?.size ?? 0), 0);
  }

  /** Deletes what is not among these, and what was on its way in when nobody fetches it. */
  async keepOnly(digests: ReadonlySet<string>): Promise<void> {
    const kept = new Set([...digests].map(nameOf));
    for (const name of await readdir(this.#directory).catch(none)) {
      const fetched = [...this.#fetching.keys()].some((digest) => name === partialPrefix + nameOf(digest));
      if (kept.has(name) || fetched || name.startsWith(`${partialPrefix}new-${process.pid}-`)) continue;
      await rm(join(this.#directory, name), { force: true });
    }
  }

  async #fetch(blob: Descriptor, source: BlobSource, options: FetchOptions): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const partial = join(this.#directory, partialPrefix + nameOf(blob.digest));
    const file = await open(partial, 'a+', 0o600);
    try {
      const begun = await Download.resume(file, blob.size);
      const resumed = begun.done > 0;
      await begun.run(blob, source, options);
      if (begun.digest() === blob.digest) {
        await rename(partial, this.path(blob.digest));
        return;
      }
      await rm(partial, { force: true });
      // What lay there from before may have been the wrong part.
      if (resumed) {
        const fresh = await open(partial, 'wx+', 0o600);
        try {
          const again = await Download.resume(fresh, blob.size);
          await again.run(blob, source, options);
          if (again.digest() === blob.digest) {
            await rename(partial, this.path(blob.digest));
            return;
          }
          await rm(partial, { force: true });
        } finally {
          await fresh.close();
        }
      }
      throw damagedBlob(source.host, blob);
    } finally {
      await file.close();
    }
  }
}

/** One file that grows towards a blob. */
class Download {
  readonly #file: FileHandle;
  #hash: Hash = createHash('sha256');
  done = 0;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Goes on after what the file holds. */
  static async resume(file: FileHandle, size: number): Promise<Download> {
    const download = new Download(file);
    const { size: present } = await file.stat();
    if (present >= size) await file.truncate(0);
    else if (present > 0) {
      const chunks = file.createReadStream({ start: 0, autoClose: false, highWaterMark: 1 << 20 });
      for await (const chunk of chunks as AsyncIterable<Buffer>) {
        download.#hash.update(chunk);
        download.done += chunk.length;
      }
    }
    return download;
  }

  digest(): string {
    return `sha256:${this.#hash.digest('hex')}`;
  }

  /** Tries again as long as something comes; gives up after a few times of nothing. */
  async run(blob: Descriptor, source: BlobSource, { signal, onBytes }: FetchOptions): Promise<void> {
    for (let failures = 0; this.done < blob.size; ) {
      const before = this.done;
      try {
        await this.#take(blob, source, onBytes);
        if (this.done < blob.size) throw cutOff(source.host, blob);
      } catch (error) {
        signal?.throwIfAborted();
        if (!isPassing(error)) throw error;
        failures = this.done > before ? 0 : failures + 1;
        if (failures >= mostFailures) throw error;
        await sleep(pauseMs * failures, undefined, { signal });
      }
    }
  }

  async #take(
    blob: Descriptor,
    source: BlobSource,
    onBytes: ((done: number) => void) | undefined,
  ): Promise<void> {
    const { bytes, offset } = await source.open(this.done);
    if (offset !== this.done) {
      await this.#file.truncate(0);
      this.#hash = createHash('sha256');
      this.done = 0;
    }
    for await (const chunk of bytes) {
      if (this.done + chunk.length > blob.size) throw damagedBlob(source.host, blob);
      await writeWhole(this.#file, chunk, this.done);
      this.#hash.update(chunk);
      this.done += chunk.length;
      onBytes?.(this.done);
    }
  }
}

async function writeWhole(file: FileHandle, chunk: Buffer, position: number): Promise<void> {
  for (let at = 0; at < chunk.length; ) {
    const { bytesWritten } = await file.write(chunk, at, chunk.length - at, position + at);
    at += bytesWritten;
  }
}

/** What another try may mend: the connection, or the registry's bad moment. */
const isPassing = (error: unknown): boolean => {
  if (error instanceof CoppiceError) return error.code === 'unavailable';
  const { code = '' } = error as NodeJS.ErrnoException;
  return ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'ERR_STREAM_PREMATURE_CLOSE'].includes(code);
};

const cutOff = (host: string, { digest }: Descriptor): CoppiceError =>
  new CoppiceError('unavailable', `${host} cuts off ${digest} each time it is asked for`);

const nameOf = (digest: string): string => digest.replace(':', '-');

const none = (error: NodeJS.ErrnoException): string[] => {
  if (error.code === 'ENOENT') return [];
  throw error;
};
