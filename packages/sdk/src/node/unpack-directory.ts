import { constants, createWriteStream } from 'node:fs';
import { link, lstat, mkdir, rm, symlink, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { type Extract, extract, type Header } from 'tar-stream';
import type { Progress } from '../files/progress.ts';

const permissionBits = 0o777;

type Entry = Extract extends AsyncIterable<infer Found> ? Found : never;

/**
 * Unpacks what a sandbox sent into a directory of this machine. A sandbox is not trusted: nothing is written outside
 * the directory, no link is followed on the way, and owners and set-user-id bits stay behind.
 */
export const unpackDirectory = async (
  tar: AsyncIterable<Uint8Array>,
  directory: string,
  onProgress?: Progress,
): Promise<{ files: number; bytes: number }> => {
  await mkdir(directory, { recursive: true });
  const unpacker = new Unpacker(directory, onProgress);
  const entries = extract();
  await Promise.all([
    pipeline(Readable.from(tar, { objectMode: false }), entries as unknown as NodeJS.WritableStream),
    unpacker.run(entries),
  ]);
  return unpacker.done;
};

class Unpacker {
  readonly #root: string;
  readonly #onProgress: Progress | undefined;
  readonly #checked = new Set<string>(['']);
  #files = 0;
  #bytes = 0;

  constructor(root: string, onProgress: Progress | undefined) {
    this.#root = root;
    this.#onProgress = onProgress;
  }

  get done(): { files: number; bytes: number } {
    return { files: this.#files, bytes: this.#bytes };
  }

  async run(entries: AsyncIterable<Entry>): Promise<void> {
    for await (const entry of entries) {
      const name = safeName(entry.header.name);
      if (name !== '') {
        await this.#ensureParents(name);
        await this.#place(name, entry.header, entry);
        if (entry.header.type !== 'directory') this.#files += 1;
        this.#onProgress?.({ files: this.#files, bytes: this.#bytes, path: name });
      }
      entry.resume();
    }
  }

  async #place(name: string, header: Header, content: Entry): Promise<void> {
    const path = join(this.#root, name);
    const mode = (header.mode ?? 0o644) & permissionBits;
    if (header.type === 'directory') return this.#makeDirectory(name, mode);
    await this.#clear(path);
    if (header.type === 'symlink') return symlink(header.linkname ?? '', path);
    if (header.type === 'link') {
      const target = safeName(header.linkname ?? '');
      await this.#ensureParents(target);
      return link(join(this.#root, target), path);
    }
    if (header.type !== 'file' && header.type !== 'contiguous-file') {
      throw new CoppiceError(
        'unsupported',
        `${name} is a ${header.type}, which is not copied out of a sandbox`,
        {
          hint: 'Remove it in the sandbox, or copy the files one by one.',
        },
      );
    }
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    // The types of createWriteStream know only the letters of fopen.
    const file = createWriteStream(path, { flags: flags as unknown as string, mode });
    content.on('data', (chunk) => {
      this.#bytes += (chunk as Buffer).length;
      this.#onProgress?.({ files: this.#files, bytes: this.#bytes, path: name });
    });
    await pipeline(content, file);
    if (header.mtime) await utimes(path, header.mtime, header.mtime);
  }

  async #makeDirectory(name: string, mode: number): Promise<void> {
    const path = join(this.#root, name);
    const found = await lstat(path).catch(ifAbsent);
    if (found?.isDirectory()) return;
    if (found) await rm(path);
    await mkdir(path, { mode: mode | 0o700 });
    this.#checked.add(name);
  }

  async #clear(path: string): Promise<void> {
    const found = await lstat(path).catch(ifAbsent);
    if (found?.isDirectory()) {
      throw new CoppiceError('conflict', `${path} is a directory here and a file in the sandbox`, {
        hint: 'Remove or rename one of them, then copy again.',
      });
    }
    if (found) await rm(path);
  }

  /** Every directory above a name is a real one, so that no link of an earlier entry leads outside. */
  async #ensureParents(name: string): Promise<void> {
    const parent = dirname(name) === '.' ? '' : dirname(name);
    if (this.#checked.has(parent)) return;
    await this.#ensureParents(parent);
    const found = await lstat(join(this.#root, parent)).catch(ifAbsent);
    if (found === undefined) await mkdir(join(this.#root, parent));
    else if (!found.isDirectory()) {
      throw new CoppiceError(
        'unsafe',
        `${name} would be written through ${parent}, which is not a directory`,
      );
    }
    this.#checked.add(parent);
  }
}

const safeName = (raw: string): string => {
  const parts = raw.split('/').filter((part) => part !== '' && part !== '.');
  if (raw.startsWith('/') || parts.includes('..') || raw.includes('\0')) {
    throw new CoppiceError(
      'unsafe',
      `the archive holds ${JSON.stringify(raw)}, which leads out of the directory`,
    );
  }
  return parts.join('/');
};

const ifAbsent = (error: NodeJS.ErrnoException): undefined => {
  if (error.code === 'ENOENT') return undefined;
  throw error;
};
