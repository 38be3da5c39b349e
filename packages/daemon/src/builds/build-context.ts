import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { posix } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { CoppiceError, PathGlob } from '@coppice/protocol';
import { extract } from 'tar-stream';
import type { CopyItem, CopySource } from './copy-files.ts';

interface ContextEntry {
  readonly type: 'file' | 'directory' | 'symlink';
  readonly mode: number;
  readonly mtime: Date;
  readonly size: number;
  /** Where its content begins in the file that holds all of them. */
  readonly offset: number;
  readonly digest: string;
  readonly link: string;
}

const mostEntries = 500_000;
const mostBytes = 16 * 2 ** 30;
const mostLinks = 40;

/**
 * The files that a build may copy, as they were sent. Their contents lie in one file; names and links are looked up in memory and never
 * touch the host's own files.
 */
export class BuildContext implements CopySource {
  readonly #file: string;
  readonly #entries = new Map<string, ContextEntry>();

  private constructor(file: string) {
    this.#file = file;
  }

  static async receive(tar: AsyncIterable<Uint8Array>, file: string): Promise<BuildContext> {
    const context = new BuildContext(file);
    const target = await open(file, 'wx', 0o600);
    // Only now: what comes before somebody asks for it would be lost.
    const reader = extract();
    const pumping = pipeline(tar, reader);
    pumping.catch(() => {});
    try {
      let offset = 0;
      for await (const entry of reader) {
        const { name, type, size = 0, mode = 0o644, mtime = new Date(0), linkname = '' } = entry.header;
        const path = cleanPath(name);
        if (context.#entries.size >= mostEntries || offset + size > mostBytes) throw tooLarge();
        const hash = createHash('sha256');
        const start = offset;
        for await (const chunk of entry as AsyncIterable<Buffer>) {
          hash.update(chunk);
          for (let at = 0; at < chunk.length; )
            at += (await target.write(chunk, at, chunk.length - at, offset + at)).bytesWritten;
          offset += chunk.length;
        }
        const common = { mode: mode & 0o7777, mtime, size: offset - start, offset: start };
        if (type === 'file')
          context.#entries.set(path, { ...common, type, digest: hash.digest('hex'), link: '' });
        else if (type === 'directory') context.#entries.set(path, { ...common, type, digest: '', link: '' });
        else if (type === 'symlink')
          context.#entries.set(path, { ...common, type, digest: '', link: linkname });
        else if (type === 'link') {
          const first = context.#entries.get(cleanPath(linkname));
          if (first !== undefined) context.#entries.set(path, first);
        } else
          throw new CoppiceError('unsupported', `${path} is neither a file, a directory nor a link`, {
            hint: 'Name it in .dockerignore.',
          });
      }
      await pumping;
    } finally {
      await target.close();
    }
    return context;
  }

  find(pattern: string): Promise<string[]> {
    const wanted = cleanPath(pattern);
    if (!/[*?[]/.test(wanted)) {
      const found = this.#resolve(wanted);
      return Promise.resolve(found === undefined ? [] : [wanted]);
    }
    const glob = new PathGlob(wanted);
    return Promise.resolve([...this.#entries.keys()].filter((path) => glob.matches(path)).sort());
  }

  async isDirectory(path: string): Promise<boolean> {
    const at = this.#resolve(path);
    return at === '' || (at !== undefined && this.#entries.get(at)?.type !== 'file');
  }

  async *items(path: string): AsyncGenerator<CopyItem, void, undefined> {
    const top = this.#resolve(path);
    if (top === undefined) return;
    for (const [relative, entry] of this.#below(top))
      yield {
        path: relative,
        type: entry.type,
        mode: entry.mode,
        uid: 0,
        gid: 0,
        mtime: entry.mtime,
        size: entry.type === 'file' ? entry.size : 0,
        link: entry.link,
        content: () => this.#read(entry),
      };
  }

  /** Of names, modes and contents; times are left out, as a fresh checkout has others. */
  async digest(path: string): Promise<string> {
    const hash = createHash('sha256');
    const top = this.#resolve(path);
    if (top !== undefined)
      for (const [relative, { type, mode, digest, link }] of this.#below(top))
        hash.update(JSON.stringify([relative, type, mode, digest, link]));
    return hash.digest('hex');
  }

  #read({ offset, size }: ContextEntry): AsyncIterable<Buffer> {
    return createReadStream(this.#file, { start: offset, end: offset + size - 1 });
  }

  /** In the order of names: a directory before what is in it. */
  #below(top: string): [string, ContextEntry][] {
    const own = this.#entries.get(top);
    if (own !== undefined && own.type !== 'directory') return [['', own]];
    const prefix = top === '' ? '' : `${top}/`;
    return [...this.#entries]
      .filter(([path]) => path.startsWith(prefix) && path !== '' && path !== top)
      .map(([path, entry]): [string, ContextEntry] => [path.slice(prefix.length), entry])
      .sort(([a], [b]) => (a < b ? -1 : 1));
  }

  /** Follows links inside the context, and none out of it. */
  #resolve(path: string): string | undefined {
    let rest = cleanPath(path).split('/').filter(Boolean);
    let at = '';
    for (let links = 0; rest.length > 0; ) {
      const next = posix.join(at, rest[0]!);
      const entry = this.#entries.get(next);
      rest = rest.slice(1);
      if (entry?.type === 'symlink') {
        links += 1;
        if (links > mostLinks) return undefined;
        const target = posix.isAbsolute(entry.link) ? entry.link : posix.join('/', at, entry.link);
        rest = [...cleanPath(target).split('/').filter(Boolean), ...rest];
        at = '';
        continue;
      }
      const exists =
        entry !== undefined || [...this.#entries.keys()].some((key) => key.startsWith(`${next}/`));
      if (!exists) return undefined;
      at = next;
    }
    return at;
  }
}

/** From the top of the context, which is empty; what climbs out of it stays at the top. */
const cleanPath = (path: string): string => posix.normalize(posix.join('/', path)).replace(/^\/|\/$/g, '');

const tooLarge = (): CoppiceError =>
  new CoppiceError('too_large', 'the directory to build from holds too many files or bytes', {
    hint: 'Name what is not needed in .dockerignore.',
  });
