import { constants, createWriteStream } from 'node:fs';
import { link, lstat, mkdir, rm, symlink, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { type Extract, extract, type Header } from 'tar-stream';
import { boundedBytes, defaultTakeOut, tooMany } from '../files/bounds.ts';
import type { TakeOut } from '../files/progress.ts';

const permissionBits = 0o777;
/** What the kernel takes as a path. */
const longestName = 4095;

type Entry = Extract extends AsyncIterable<infer Found> ? Found : never;

/**
 * Unpacks what a sandbox sent into a directory of this machine. Neither the sandbox nor the daemon is trusted: nothing is
 * written outside the directory, no link is followed on the way, owners and set-user-id bits stay behind, and there is an
 * end to how much is taken.
 */
export const unpackDirectory = async (
  tar: AsyncIterable<Uint8Array>,
  directory: string,
  options: TakeOut = {},
): Promise<{ files: number; bytes: number }> => {
  await mkdir(directory, { recursive: true });
  const unpacker = new Unpacker(directory, options);
  const entries = extract();
  const bounded = boundedBytes(tar, options.maxBytes);
  await Promise.all([
    pipeline(Readable.from(bounded, { objectMode: false }), entries as unknown as NodeJS.WritableStream),
    unpacker.run(entries),
  ]);
  return unpacker.done;
};

class Unpacker {
  readonly #root: string;
  readonly #onProgress: TakeOut['onProgress'];
  readonly #maxFiles: number;
  readonly #checked = new Set<string>(['']);
  /** Files that came from the archive: a hard link leads to one of them, and never to what was there before. */
  readonly #placed = new Set<string>();
  #entries = 0;
  #files = 0;
  #bytes = 0;

  constructor(root: string, { onProgress, maxFiles = defaultTakeOut.maxFiles }: TakeOut) {
    this.#root = root;
    this.#onProgress = onProgress;
    this.#maxFiles = maxFiles;
  }

  get done(): { files: number; bytes: number } {
    return { files: this.#files, bytes: this.#bytes };
  }

  async run(entries: AsyncIterable<Entry>): Promise<void> {
    for await (const entry of entries) {
      this.#entries += 1;
      if (this.#entries > this.#maxFiles) throw tooMany(this.#maxFiles);
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
    this.#placed.delete(name);
    if (header.type === 'symlink') return symlink(header.linkname ?? '', path);
    if (header.type === 'link') {
      const target = safeName(header.linkname ?? '');
      if (!this.#placed.has(target))
        throw new CoppiceError(
          'unsafe',
          `${name} is another name of ${target}, which the archive does not hold`,
        );
      this.#placed.add(name);
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
    this.#placed.add(name);
    // A sandbox may give a file a time that no calendar has.
    if (header.mtime && !Number.isNaN(header.mtime.getTime())) await utimes(path, header.mtime, header.mtime);
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
  if (Buffer.byteLength(raw) > longestName)
    throw new CoppiceError('unsafe', `the archive holds a path of ${raw.length} characters`);
  return parts.join('/');
};

const ifAbsent = (error: NodeJS.ErrnoException): undefined => {
  if (error.code === 'ENOENT') return undefined;
  throw error;
};
