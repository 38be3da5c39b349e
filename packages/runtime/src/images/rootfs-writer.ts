import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  futimesSync,
  lchownSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  symlinkSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../programs/run-program.ts';
import { unsafe } from './entry-path.ts';

export interface EntryAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeSeconds: number;
}

/** All paths are remembered while an archive is unpacked. */
const maxPathsBytes = 512 * 2 ** 20;

type Kind = 'file' | 'directory' | 'symlink' | 'fifo';

/**
 * Writes a tree into an empty directory that nobody else writes to. It remembers what it made, and each new entry must
 * lie in directories that it made itself: no write ever goes through a symlink, whatever order the entries come in.
 * Its calls are synchronous, each a few microseconds: through the thread pool a file costs a millisecond.
 */
export class RootfsWriter {
  readonly #root: string;
  readonly #maxEntries: number;
  #pathsBytes = 0;
  readonly #made = new Map<string, Kind>([['', 'directory']]);
  /** Directories get their attributes last: writing into one changes its time, and it may be read-only. */
  readonly #directories = new Map<string, EntryAttributes>();

  constructor(root: string, maxEntries: number) {
    this.#root = root;
    this.#maxEntries = maxEntries;
  }

  kindOf(path: string): string | undefined {
    return this.#made.get(path);
  }

  directory(path: string, attributes: EntryAttributes): void {
    this.#prepareParents(path);
    const existing = this.#made.get(path);
    if (existing !== undefined && existing !== 'directory') throw unsafe(path, `it replaces a ${existing}`);
    if (existing === undefined) mkdirSync(join(this.#root, path), { mode: 0o700 });
    this.#remember(path, 'directory');
    this.#directories.set(path, attributes);
  }

  async file(path: string, content: AsyncIterable<Uint8Array>, attributes: EntryAttributes): Promise<void> {
    this.#prepare(path, 'file');
    const flags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW;
    const fd = openSync(join(this.#root, path), flags, 0o600);
    try {
      for await (const chunk of content) writeWhole(fd, chunk);
      fchownSync(fd, attributes.uid, attributes.gid);
      // After chown, which clears the set-uid and set-gid bits.
      fchmodSync(fd, attributes.mode);
      futimesSync(fd, attributes.mtimeSeconds, attributes.mtimeSeconds);
    } finally {
      closeSync(fd);
    }
  }

  symlink(path: string, target: string, attributes: EntryAttributes): void {
    this.#prepare(path, 'symlink');
    const absolute = join(this.#root, path);
    symlinkSync(target, absolute);
    lchownSync(absolute, attributes.uid, attributes.gid);
    lutimesSync(absolute, attributes.mtimeSeconds, attributes.mtimeSeconds);
  }

  async fifo(path: string, attributes: EntryAttributes): Promise<void> {
    this.#prepare(path, 'fifo');
    const absolute = join(this.#root, path);
    await runProgram(['mkfifo', '--', absolute]);
    lchownSync(absolute, attributes.uid, attributes.gid);
    chmodSync(absolute, attributes.mode);
    lutimesSync(absolute, attributes.mtimeSeconds, attributes.mtimeSeconds);
  }

  hardlink(path: string, target: string): void {
    const kind = this.#made.get(target);
    if (kind === undefined || kind === 'directory') {
      throw unsafe(
        path,
        `it is a hardlink to ${JSON.stringify(target)}, which is no file that came before it`,
      );
    }
    if (path === target) throw unsafe(path, 'it is a hardlink to itself');
    this.#prepare(path, kind);
    linkSync(join(this.#root, target), join(this.#root, path));
  }

  finish(): void {
    for (const [path, { uid, gid, mode, mtimeSeconds }] of [...this.#directories].reverse()) {
      const absolute = join(this.#root, path);
      lchownSync(absolute, uid, gid);
      chmodSync(absolute, mode);
      lutimesSync(absolute, mtimeSeconds, mtimeSeconds);
    }
  }

  /** A later entry of the same kind replaces an earlier one, as archives that were appended to have it. */
  #prepare(path: string, kind: Kind): void {
    this.#prepareParents(path);
    const existing = this.#made.get(path);
    if (existing !== undefined && existing !== kind)
      throw unsafe(path, `it is a ${kind} that replaces a ${existing}`);
    if (existing !== undefined) unlinkSync(join(this.#root, path));
    this.#remember(path, kind);
  }

  /** Directories that no entry names count too: one entry may lie below a thousand of them. */
  #remember(path: string, kind: Kind): void {
    if (!this.#made.has(path)) this.#pathsBytes += path.length;
    if (this.#made.size >= this.#maxEntries || this.#pathsBytes > maxPathsBytes)
      throw new CoppiceError('too_large', `the archive holds more than ${this.#maxEntries} entries`);
    this.#made.set(path, kind);
  }

  #prepareParents(path: string): void {
    if (path === '') return;
    const dir = dirname(path);
    const parent = dir === '.' ? '' : dir;
    const kind = this.#made.get(parent);
    if (kind === 'directory') return;
    if (kind !== undefined) throw unsafe(path, `it lies below ${JSON.stringify(parent)}, which is a ${kind}`);
    this.directory(parent, { mode: 0o755, uid: 0, gid: 0, mtimeSeconds: 0 });
  }
}

function writeWhole(fd: number, chunk: Uint8Array): void {
  for (let at = 0; at < chunk.length; ) at += writeSync(fd, chunk, at);
}
