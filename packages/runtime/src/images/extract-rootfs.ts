import type { Readable } from 'node:stream';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol';
import { extract, type Header } from 'tar-stream';
import { mountPlaces } from '../machine/mount-places.ts';
import { type ArchiveFormat, asRefusal, type OpenedArchive, openArchive } from './archive-format.ts';
import { checkSymlinkTarget, parseEntryPath, unsafe } from './entry-path.ts';
import { hostsLink } from './host-etc.ts';
import type { BuildOptions } from './image.ts';
import { type EntryAttributes, RootfsWriter } from './rootfs-writer.ts';

export interface ExtractOptions extends BuildOptions {
  /** What the files may add up to; an archive that holds more is refused. */
  readonly maxBytes: number;
  /** How many entries it may have: an archive of a few megabytes can hold as many empty files as would fill the memory. */
  readonly maxEntries: number;
}

export interface Extracted {
  readonly format: ArchiveFormat;
  readonly warnings: readonly string[];
}

/**
 * Unpacks a tar archive into an empty private directory. The policy: entries stay below the root, links too, no
 * device nodes, nothing through a symlink, nothing half read. It throws at the first entry that breaks it; the caller then
 * deletes the directory, so that an archive is taken whole or not at all.
 */
export async function extractRootfs(
  stream: Readable,
  rootfs: string,
  options: ExtractOptions,
): Promise<Extracted> {
  try {
    return await extractArchive(await openArchive(stream), rootfs, options);
  } finally {
    stream.destroy();
  }
}

/** The same for an archive whose beginning was looked at already. */
export async function extractArchive(
  archive: OpenedArchive,
  rootfs: string,
  options: ExtractOptions,
): Promise<Extracted> {
  try {
    const reader = extract();
    const end = new EndOfArchive();
    const pumping = pipeline(archive.tar, end, reader, { signal: options.signal });
    // The loop below fails with the same error; without this it would count as unhandled when the loop fails first.
    pumping.catch(() => {});
    const run = new Extraction(rootfs, options);
    for await (const entry of reader) await run.take(entry.header, entry as EntryContent);
    await pumping;
    run.finish(end.found);
    return { format: archive.format, warnings: run.warnings };
  } catch (error) {
    throw asRefusal(error);
  }
}

type EntryContent = AsyncIterable<Uint8Array> & { resume(): unknown };

class Extraction {
  readonly #writer: RootfsWriter;
  readonly #options: ExtractOptions;
  #bytes = 0;
  #entries = 0;
  #withXattrs = 0;
  readonly warnings: string[] = [];

  constructor(rootfs: string, options: ExtractOptions) {
    this.#writer = new RootfsWriter(rootfs, options.maxEntries);
    this.#options = options;
  }

  async take(header: Header, content: EntryContent): Promise<void> {
    const name = header.name;
    const parts = parseEntryPath(name);
    const path = parts.join('/');
    const attributes = readAttributes(header);
    this.#entries += 1;
    if (Object.keys(paxOf(header)).some((key) => key.startsWith('SCHILY.xattr.'))) this.#withXattrs += 1;
    const type = isOldDirectory(header) ? 'directory' : header.type;
    if (path === '' && type !== 'directory') throw unsafe(name, 'it replaces the root itself');
    if (type === 'file' || type === 'contiguous-file') {
      refuseSparse(header);
      this.#count(header.size ?? 0);
      await this.#writer.file(path, content, attributes);
      return;
    }
    content.resume();
    if (type === 'directory') this.#writer.directory(path, attributes);
    else if (type === 'symlink') {
      const target = header.linkname ?? '';
      checkSymlinkTarget(name, parts, target);
      this.#writer.symlink(path, target, attributes);
    } else if (type === 'link') {
      this.#writer.hardlink(path, parseEntryPath(header.linkname ?? '').join('/'));
    } else if (type === 'fifo') await this.#writer.fifo(path, attributes);
    else if (type === 'character-device' || type === 'block-device')
      throw unsafe(name, 'it is a device node');
    else {
      throw new CoppiceError(
        'unsupported',
        `the entry ${JSON.stringify(name)} is of a kind that is not supported`,
        {
          hint: 'Nothing was written. Pack it as a plain POSIX tar, without --sparse: tar --format=posix -cf …',
        },
      );
    }
  }

  finish(endFound: boolean): void {
    if (!endFound) throw new CoppiceError('invalid_argument', 'the archive is cut off: its end is missing');
    if (this.#entries === 0) throw new CoppiceError('invalid_argument', 'the archive holds no files');
    for (const place of mountPlaces) {
      const kind = this.#writer.kindOf(place);
      if (kind !== undefined && kind !== 'directory') {
        throw unsafe(
          place,
          `it is a ${kind}, and sandboxes have something mounted there; make it a directory`,
        );
      }
    }
    const fresh = (mode: number, owner: number): EntryAttributes => ({
      mode,
      uid: owner,
      gid: owner,
      mtimeSeconds: 0,
    });
    // Every sandbox has these; an archive made of a running system often lacks them.
    for (const name of ['dev', 'proc', 'sys', 'run', 'etc']) this.#ensure(name, fresh(0o755, 0));
    this.#ensure('tmp', fresh(0o1777, 0));
    this.#ensure('workspace', fresh(0o755, 0));
    const [hosts, target] = hostsLink;
    if (this.#writer.kindOf('etc') === 'directory' && this.#writer.kindOf(hosts) === undefined)
      this.#writer.symlink(hosts, target, fresh(0o777, 0));
    this.#writer.finish();
    if (this.#withXattrs > 0) {
      this.warnings.push(
        `extended attributes of ${this.#withXattrs} entries were not kept (file capabilities, ACLs)`,
      );
    }
  }

  #ensure(name: string, attributes: EntryAttributes): void {
    if (this.#writer.kindOf(name) === undefined) this.#writer.directory(name, attributes);
  }

  #count(sizeBytes: number): void {
    this.#bytes += sizeBytes;
    if (this.#bytes > this.#options.maxBytes) {
      throw new CoppiceError('too_large', `the archive holds more than ${this.#options.maxBytes} bytes`);
    }
    this.#options.onProgress?.({ phase: 'unpacking', done: this.#bytes, total: null, unit: 'bytes' });
  }
}

const paxOf = (header: Header): Record<string, string> => (header.pax ?? {}) as Record<string, string>;

/** Archives older than POSIX mark a directory by a slash at its end. */
const isOldDirectory = (header: Header): boolean => header.type === 'file' && header.name.endsWith('/');

function refuseSparse(header: Header): void {
  if (!Object.keys(paxOf(header)).some((key) => key.startsWith('GNU.sparse.'))) return;
  throw new CoppiceError(
    'unsupported',
    `the entry ${JSON.stringify(header.name)} is a sparse file in GNU's form`,
    {
      hint: 'Nothing was written. Pack it again without --sparse.',
    },
  );
}

const maxId = 0xffff_fffe;

function readAttributes(header: Header): EntryAttributes {
  const number = (key: string, plain: number | undefined): number => Number(paxOf(header)[key] ?? plain ?? 0);
  const uid = number('uid', header.uid);
  const gid = number('gid', header.gid);
  const mtimeSeconds = number('mtime', (header.mtime?.getTime() ?? 0) / 1000);
  const mode = header.mode ?? 0o644;
  const isId = (id: number): boolean => Number.isInteger(id) && id >= 0 && id <= maxId;
  if (!isId(uid) || !isId(gid) || !Number.isFinite(mtimeSeconds) || !Number.isInteger(mode)) {
    throw new CoppiceError(
      'invalid_argument',
      `the entry ${JSON.stringify(header.name)} has a broken header`,
    );
  }
  return { mode: mode & 0o7777, uid, gid, mtimeSeconds };
}

/** Notes whether the archive ends as every tar does, with a block of zeros: a cut between two entries shows only here. */
class EndOfArchive extends Transform {
  #tail = Buffer.alloc(0);

  get found(): boolean {
    return this.#tail.length === 512 && this.#tail.every((byte) => byte === 0);
  }

  override _transform(
    chunk: Buffer,
    _encoding: string,
    done: (error: Error | null, data: Buffer) => void,
  ): void {
    const tail = chunk.length >= 512 ? chunk : Buffer.concat([this.#tail, chunk]);
    this.#tail = Buffer.from(tail.subarray(-512));
    done(null, chunk);
  }
}
