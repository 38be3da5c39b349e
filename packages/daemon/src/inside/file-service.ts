import { isUtf8 } from 'node:buffer';
import { posix } from 'node:path';
import { CoppiceError, type FileEvent, type FileInfo } from '@coppice/protocol';
import { type FileStat, GatheredBytes, type Guest, type UnpackOptions } from '@coppice/runtime';
import { TextSearch } from '../text/replace-text.ts';
import { type GuestAccess, withGuest } from './guest-access.ts';
import { guestTime } from './guest-time.ts';

const editLimitBytes = 16 * 1024 * 1024;

const toFile = (stat: FileStat): FileInfo => ({
  path: stat.path,
  name: posix.basename(stat.path) || '/',
  kind: stat.kind,
  size_bytes: stat.sizeBytes,
  mode: stat.mode.toString(8).padStart(3, '0'),
  uid: stat.uid,
  gid: stat.gid,
  modified_at: guestTime(stat.mtimeMs),
  target: stat.target,
});

export interface WriteInput {
  readonly path: string;
  readonly mode?: string | undefined;
  readonly owner?: string | undefined;
  readonly parents: boolean;
}

export interface EditInput {
  readonly path: string;
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all: boolean;
}

/** Files inside a sandbox. The agent resolves every path there; nothing here touches the host's files. */
export class FileService {
  readonly #guests: GuestAccess;

  constructor(guests: GuestAccess) {
    this.#guests = guests;
  }

  async stat(ref: string, path: string): Promise<FileInfo> {
    return withGuest(this.#guests, ref, async ({ guest }) => toFile(await guest.stat(path)));
  }

  async list(
    ref: string,
    path: string,
    options: { depth: number; limit: number },
  ): Promise<{ entries: FileInfo[]; truncated: boolean }> {
    return withGuest(this.#guests, ref, async ({ guest }) => {
      const { entries, truncated } = await guest.list(path, options);
      return { entries: entries.map(toFile), truncated };
    });
  }

  /** The size is known before the first byte, so that a reader can show progress and notice a short answer. */
  async read(
    ref: string,
    path: string,
    range: { offset?: number | undefined; length?: number | undefined },
  ): Promise<{ bytes: AsyncIterable<Buffer>; sizeBytes: number }> {
    const lease = await this.#guests.acquire(ref);
    try {
      const stat = await lease.guest.stat(path);
      if (stat.kind === 'directory') {
        throw new CoppiceError('invalid_argument', `${path} is a directory`, {
          hint: 'List it, or download it as an archive.',
        });
      }
      const offset = range.offset ?? 0;
      const sizeBytes = Math.max(
        0,
        Math.min(range.length ?? Number.POSITIVE_INFINITY, stat.sizeBytes - offset),
      );
      // A symlink's own size is not its target's, and files in /proc say 0: their end is where reading ends.
      const known = stat.kind === 'file' && stat.sizeBytes > 0;
      const length = known ? sizeBytes : range.length;
      const bytes = lease.guest.read(path, { offset, ...(length === undefined ? {} : { length }) });
      return { bytes: this.#leased(bytes, () => lease.release()), sizeBytes: known ? sizeBytes : -1 };
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async write(
    ref: string,
    input: WriteInput,
    data: AsyncIterable<Uint8Array>,
  ): Promise<{ path: string; bytes: number }> {
    return withGuest(this.#guests, ref, async ({ guest }) => {
      const bytes = await guest.write(input.path, data, {
        ...(input.mode === undefined ? {} : { mode: Number.parseInt(input.mode, 8) }),
        ...(input.owner === undefined ? {} : { owner: input.owner }),
        createParents: input.parents,
      });
      return { path: input.path, bytes };
    });
  }

  /** Replaces an exact string. Absent or ambiguous is an error, and then nothing is written. */
  async edit(ref: string, input: EditInput): Promise<{ path: string; replacements: number; bytes: number }> {
    return withGuest(this.#guests, ref, async ({ guest }) => {
      const before = await this.#readText(guest, input.path);
      const search = new TextSearch(before, Buffer.from(input.old_string));
      const count = await search.count();
      if (count === 0) throw new CoppiceError('no_match', `the text to replace is not in ${input.path}`);
      if (count > 1 && !input.replace_all) {
        throw new CoppiceError('ambiguous', `the text to replace is in ${input.path} ${count} times`, {
          hint: 'Quote more of the lines around it, or replace all of them (replace_all, `--all`).',
          details: { count },
        });
      }
      const by = Buffer.from(input.new_string);
      const sizeBytes = before.length + count * (by.length - Buffer.byteLength(input.old_string));
      if (sizeBytes > editLimitBytes)
        throw new CoppiceError(
          'too_large',
          `${input.path} would become larger than the ${editLimitBytes} bytes that can be edited at once`,
        );
      const bytes = await guest.write(input.path, single(await search.replace(by, count)));
      return { path: input.path, replacements: count, bytes };
    });
  }

  async move(ref: string, from: string, to: string): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.move(from, to));
  }

  async remove(ref: string, path: string, recursive: boolean): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.remove(path, { recursive }));
  }

  async makeDirectory(
    ref: string,
    input: { path: string; parents: boolean; mode?: string | undefined },
  ): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) =>
      guest.mkdir(input.path, {
        parents: input.parents,
        ...(input.mode === undefined ? {} : { mode: Number.parseInt(input.mode, 8) }),
      }),
    );
  }

  async watch(
    ref: string,
    path: string,
    recursive: boolean,
    signal: AbortSignal,
  ): Promise<AsyncIterable<FileEvent>> {
    const lease = await this.#guests.acquire(ref);
    try {
      await lease.guest.stat(path);
    } catch (error) {
      lease.release();
      throw error;
    }
    return this.#leased(lease.guest.watch(path, { recursive, signal }), () => lease.release());
  }

  async pack(ref: string, path: string): Promise<AsyncIterable<Buffer>> {
    const lease = await this.#guests.acquire(ref);
    return this.#leased(lease.guest.pack(path), () => lease.release());
  }

  async unpack(
    ref: string,
    path: string,
    tar: AsyncIterable<Uint8Array>,
    options: UnpackOptions = {},
  ): Promise<{ path: string; files: number; bytes: number }> {
    return withGuest(this.#guests, ref, async ({ guest }) => ({
      path,
      ...(await guest.unpack(path, tar, options)),
    }));
  }

  async #readText(guest: Guest, path: string): Promise<Buffer> {
    const gathered = new GatheredBytes();
    for await (const chunk of guest.read(path)) {
      gathered.add(chunk);
      if (gathered.length > editLimitBytes)
        throw new CoppiceError(
          'too_large',
          `${path} is larger than the ${editLimitBytes} bytes that can be edited at once`,
        );
    }
    const { bytes } = gathered;
    if (!isUtf8(bytes))
      throw new CoppiceError('invalid_argument', `${path} is not text`, {
        hint: 'Write the whole file instead.',
      });
    return bytes;
  }

  async *#leased<T>(source: AsyncIterable<T>, release: () => void): AsyncIterable<T> {
    try {
      yield* source;
    } finally {
      release();
    }
  }
}

async function* single(data: Buffer): AsyncIterable<Buffer> {
  yield data;
}
