import { createReadStream, type Dirent } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { type Header, type Pack, pack } from 'tar-stream';
import { deferred } from '../connection/deferred.ts';
import type { Progress } from '../files/progress.ts';

const permissionBits = 0o7777;

type EntryHeader = Partial<Header> & Pick<Header, 'name'>;

/** A directory of this machine as a tar stream, read as the other end takes it. */
export const packDirectory = (directory: string, onProgress?: Progress, choice = everything): Readable => {
  const archive = pack();
  new Packer(archive, directory, onProgress, choice).run().then(
    () => archive.finalize(),
    (error: Error) => archive.destroy(error),
  );
  return Readable.from(archive, { objectMode: false });
};

/** Which entries are packed, by their paths below the directory. */
interface Choice {
  takes(path: string): boolean;
  /** Whether anything below a directory may be taken. */
  enters(path: string): boolean;
}

const everything: Choice = { takes: () => true, enters: () => true };

class Packer {
  readonly #archive: Pack;
  readonly #root: string;
  readonly #onProgress: Progress | undefined;
  readonly #choice: Choice;
  readonly #links = new Map<string, string>();
  #files = 0;
  #bytes = 0;

  constructor(archive: Pack, root: string, onProgress: Progress | undefined, choice: Choice) {
    this.#choice = choice;
    this.#archive = archive;
    this.#root = root;
    this.#onProgress = onProgress;
  }

  async run(): Promise<void> {
    await this.#directory('');
  }

  async #directory(relative: string): Promise<void> {
    const entries = await readdir(join(this.#root, relative), { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      await this.#entry(relative === '' ? entry.name : `${relative}/${entry.name}`, entry);
    }
  }

  async #entry(name: string, entry: Dirent): Promise<void> {
    const path = join(this.#root, name);
    if (!this.#choice.takes(name)) {
      if (entry.isDirectory() && this.#choice.enters(name)) await this.#directory(name);
      return;
    }
    const stats = await lstat(path);
    const header: EntryHeader = { name, mode: stats.mode & permissionBits, mtime: stats.mtime };
    if (entry.isDirectory()) {
      await this.#add({ ...header, type: 'directory' });
      await this.#directory(name);
    } else if (entry.isSymbolicLink()) {
      await this.#add({ ...header, type: 'symlink', linkname: await readlink(path) });
    } else if (entry.isFile()) {
      const first = stats.nlink > 1 ? this.#firstName(`${stats.dev}:${stats.ino}`, name) : name;
      if (first !== name) await this.#add({ ...header, type: 'link', linkname: first });
      else await this.#file(path, { ...header, type: 'file', size: stats.size });
    } else {
      throw new CoppiceError('unsupported', `${path} is neither a file, a directory nor a symbolic link`, {
        hint: 'Remove it, or copy the files one by one.',
      });
    }
    this.#files += 1;
    this.#report(name);
  }

  #firstName(inode: string, name: string): string {
    const first = this.#links.get(inode);
    if (first === undefined) this.#links.set(inode, name);
    return first ?? name;
  }

  #add(header: EntryHeader): Promise<void> {
    const { promise, resolve, reject } = deferred<void>();
    // An entry without content must be given an empty one, or the archive waits for it.
    this.#archive.entry(header, '', (error) => (error ? reject(error) : resolve()));
    return promise;
  }

  async #file(path: string, header: EntryHeader & { size: number }): Promise<void> {
    if (header.size === 0) return this.#add(header);
    const { promise, resolve, reject } = deferred<void>();
    const entry = this.#archive.entry(header, (error) => (error ? reject(error) : resolve()));
    // A file that grows meanwhile is sent as long as it was; one that shrinks is an error of the archive.
    const source = createReadStream(path, { end: header.size - 1 });
    source.on('data', (chunk) => {
      this.#bytes += chunk.length;
      this.#report(header.name);
    });
    await Promise.all([pipeline(source, entry as unknown as NodeJS.WritableStream), promise]);
  }

  #report(path: string): void {
    this.#onProgress?.({ files: this.#files, bytes: this.#bytes, path });
  }
}
