import { randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, realpath, rename, rm, statfs } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol';

/** How often the room that is left is looked at while a file is written. */
const lookEveryBytes = 4 * 1024 * 1024;
const mostReservedBytes = 1024 ** 3;

const directoryFlags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

export interface ConfinedEntry {
  readonly name: string;
  readonly isDirectory: boolean;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
}

/**
 * A directory of this machine that agents may use, and nothing outside of it. Each part of a path is opened below the one
 * before, and a symbolic link at any level is refused: what is checked is what is used, whoever swaps names meanwhile.
 */
export class ConfinedDirectory {
  readonly #root: string;
  /** As it was configured, which may lead through links; paths may begin with either. */
  readonly #given: string;
  /** For people: what this directory is for. */
  readonly #purpose: string;
  /** How it is made another one, where it can be. */
  readonly #setting: string | undefined;

  private constructor(root: string, given: string, purpose: string, setting: string | undefined) {
    this.#root = root;
    this.#given = given;
    this.#purpose = purpose;
    this.#setting = setting;
  }

  static async open(root: string, purpose: string, setting?: string): Promise<ConfinedDirectory> {
    await mkdir(root, { recursive: true, mode: 0o700 });
    return new ConfinedDirectory(await realpath(root), resolve(root), purpose, setting);
  }

  get path(): string {
    return this.#root;
  }

  /** The whole path of what was read, from the root on. */
  relative(path: string): string {
    return this.#parts(path).join('/');
  }

  /** Opens a regular file for reading; the caller closes it. */
  async read(path: string): Promise<{ file: FileHandle; sizeBytes: number }> {
    return this.#below(path, false, async (parent, name) => {
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const file = await open(`${parent}/${name}`, flags).catch((error: unknown) => this.#fail(error, path));
      try {
        const stat = await file.stat();
        if (!stat.isFile()) throw new CoppiceError('invalid_argument', `${path} is not a regular file`);
        return { file, sizeBytes: stat.size };
      } catch (error) {
        await file.close();
        throw error;
      }
    });
  }

  /** Writes the whole file or nothing. */
  async write(path: string, data: AsyncIterable<Uint8Array>): Promise<{ bytes: number }> {
    return this.#below(path, true, async (parent, name) => {
      await this.#refuseLink(`${parent}/${name}`, path);
      const temporary = `${parent}/.${randomBytes(8).toString('hex')}.partial`;
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      const file = await open(temporary, flags, 0o600).catch((error: unknown) => this.#fail(error, path));
      let bytes = 0;
      let lookAtBytes = 0;
      try {
        for await (const chunk of data) {
          if (bytes >= lookAtBytes) {
            await this.#assertRoom(parent, path);
            lookAtBytes = bytes + lookEveryBytes;
          }
          await file.writeFile(chunk).catch((error: unknown) => this.#fail(error, path));
          bytes += chunk.length;
        }
        await file.close();
        await rename(temporary, `${parent}/${name}`).catch((error: unknown) => this.#fail(error, path));
      } catch (error) {
        await file.close().catch(() => undefined);
        await rm(temporary, { force: true });
        throw error;
      }
      return { bytes };
    });
  }

  /** What is in a directory; the empty path is the root. Links are left out: they cannot be used. */
  async list(path: string): Promise<ConfinedEntry[]> {
    const parts = this.#parts(path);
    return this.#walk(parts, false, path, async (directory) => {
      const entries = await readdir(directory, { withFileTypes: true });
      const found = entries.filter(
        (entry) => (entry.isFile() || entry.isDirectory()) && !entry.name.endsWith('.partial'),
      );
      return Promise.all(
        found.map(async (entry) => {
          const stat = await lstat(`${directory}/${entry.name}`);
          return {
            name: entry.name,
            isDirectory: entry.isDirectory(),
            sizeBytes: stat.size,
            modifiedMs: stat.mtimeMs,
          };
        }),
      );
    });
  }

  async remove(path: string): Promise<void> {
    await this.#below(path, false, async (parent, name) => {
      await this.#existing(`${parent}/${name}`, path);
      await rm(`${parent}/${name}`).catch((error: unknown) => this.#fail(error, path));
    });
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.#below(path, false, (parent, name) => this.#existing(`${parent}/${name}`, path));
      return true;
    } catch (error) {
      if (error instanceof CoppiceError && error.code === 'not_found') return false;
      throw error;
    }
  }

  async move(from: string, to: string): Promise<void> {
    await this.#below(from, false, (fromParent, fromName) =>
      this.#below(to, true, async (toParent, toName) => {
        await this.#existing(`${fromParent}/${fromName}`, from);
        await this.#refuseLink(`${toParent}/${toName}`, to);
        await rename(`${fromParent}/${fromName}`, `${toParent}/${toName}`).catch((error: unknown) =>
          this.#fail(error, to),
        );
      }),
    );
  }

  /** A file of a sandbox may be without end: the disk, which the daemon may need too, is never filled by one. */
  async #assertRoom(parent: string, path: string): Promise<void> {
    const { bavail, blocks, bsize } = await statfs(parent);
    const reservedBytes = Math.min(mostReservedBytes, (blocks * bsize) / 20);
    if (bavail * bsize < reservedBytes + lookEveryBytes) throw this.#full(path);
  }

  #full(path: string, cause?: unknown): CoppiceError {
    return new CoppiceError('no_space', `there is no room for ${path} in the ${this.#purpose}`, {
      hint: `Nothing was written. Look how large the file is; the user frees space on the disk of ${this.#root}.`,
      cause,
    });
  }

  async #existing(actual: string, path: string): Promise<Stats> {
    const stat = await lstat(actual).catch((error: unknown) => this.#fail(error, path));
    if (stat.isSymbolicLink()) this.#refuse(path);
    return stat;
  }

  async #refuseLink(actual: string, path: string): Promise<void> {
    try {
      if ((await lstat(actual)).isSymbolicLink()) this.#refuse(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#fail(error, path);
    }
  }

  async #below<T>(
    path: string,
    createParents: boolean,
    work: (parent: string, name: string) => Promise<T>,
  ): Promise<T> {
    const parts = this.#parts(path);
    const name = parts.pop();
    if (name === undefined) throw new CoppiceError('invalid_argument', `${path} is the directory itself`);
    return this.#walk(parts, createParents, path, (parent) => work(parent, name));
  }

  async #walk<T>(
    parts: readonly string[],
    create: boolean,
    path: string,
    work: (directory: string) => Promise<T>,
  ): Promise<T> {
    let handle = await open(this.#root, directoryFlags).catch((error: unknown) => this.#fail(error, path));
    try {
      for (const part of parts) {
        const child = `/proc/self/fd/${handle.fd}/${part}`;
        if (create)
          await mkdir(child, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
            if (error.code !== 'EEXIST') this.#fail(error, path);
          });
        const next = await open(child, directoryFlags).catch((error: unknown) => this.#fail(error, path));
        await handle.close();
        handle = next;
      }
      return await work(`/proc/self/fd/${handle.fd}`);
    } finally {
      await handle.close();
    }
  }

  #parts(path: string): string[] {
    if (path.includes('\0')) throw new CoppiceError('invalid_argument', 'the path holds a NUL byte');
    let inside = path;
    if (isAbsolute(path)) {
      const base = [this.#root, this.#given].find((root) => path === root || path.startsWith(`${root}/`));
      if (base === undefined) this.#outside(path);
      inside = path.slice(base.length);
    }
    const parts = inside.split('/').filter((part) => part !== '' && part !== '.');
    if (parts.includes('..')) this.#outside(path);
    return parts;
  }

  #outside(path: string): never {
    throw new CoppiceError('unsafe', `${path} is outside of the ${this.#purpose}`, {
      hint: `Use a path inside ${join(this.#root, '/')}, or one relative to it${this.#setting === undefined ? '' : `; the user makes it another directory with ${this.#setting}`}.`,
    });
  }

  #refuse(path: string): never {
    throw new CoppiceError('unsafe', `${path} leads through a symbolic link`, {
      hint: `Use a path without symbolic links inside ${join(this.#root, '/')}.`,
    });
  }

  #fail(error: unknown, path: string): never {
    if (error instanceof CoppiceError) throw error;
    const { code, errno } = error as NodeJS.ErrnoException;
    if (code === 'ENAMETOOLONG')
      throw new CoppiceError('invalid_argument', 'the path has a name that is too long', { cause: error });
    // Node has no name for a used-up quota.
    if (code === 'ENOSPC' || errno === -122) throw this.#full(path, error);
    // A link that was to be followed as a directory says ENOTDIR, as a plain file in its place does.
    if (code === 'ELOOP' || code === 'ENOTDIR') this.#refuse(path);
    if (code === 'ENOENT')
      throw new CoppiceError('not_found', `${path} does not exist in the ${this.#purpose}`, {
        hint: `The directory is ${this.#root}; look at what is there.`,
        cause: error,
      });
    if (code === 'EISDIR' || code === 'ENOTEMPTY')
      throw new CoppiceError('invalid_argument', `${path} is a directory`, { cause: error });
    throw error;
  }
}
