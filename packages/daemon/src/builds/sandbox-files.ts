import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { CoppiceError, type FileInfo, PathGlob } from '@coppice/protocol';
import type { UnpackOptions } from '@coppice/runtime';
import { type Header, pack } from 'tar-stream';
import type { FileService } from '../inside/file-service.ts';
import type { CopyItem, CopySource, CopyTarget } from './copy-files.ts';
import { tarItems } from './tar-items.ts';

const listLimit = 10_000;

/** Files of a sandbox as what COPY reads from and writes to. The agent inside resolves every path. */
export class SandboxFiles implements CopySource, CopyTarget {
  readonly #files: FileService;
  readonly #sandbox: string;

  constructor(files: FileService, sandbox: string) {
    this.#files = files;
    this.#sandbox = sandbox;
  }

  async find(pattern: string): Promise<string[]> {
    const path = posix.join('/', pattern);
    if (!/[*?[]/.test(path)) return (await this.stat(path)) === undefined ? [] : [path];
    const top = path.slice(0, path.search(/[*?[]/)).replace(/[^/]*$/, '') || '/';
    const depth = Math.max(1, path.split('/').length - top.split('/').filter(Boolean).length - 1);
    const { entries } = await this.#files.list(this.#sandbox, top, { depth, limit: listLimit });
    const glob = new PathGlob(path);
    return entries
      .map((entry) => entry.path)
      .filter((entry) => glob.matches(entry))
      .sort();
  }

  async isDirectory(path: string): Promise<boolean> {
    const found = await this.stat(path);
    if (found?.kind !== 'symlink') return found?.kind === 'directory';
    return this.#files.list(this.#sandbox, path, { depth: 1, limit: 1 }).then(
      () => true,
      () => false,
    );
  }

  async *items(path: string): AsyncGenerator<CopyItem, void, undefined> {
    if (!(await this.isDirectory(path))) {
      const found = await this.stat(path);
      if (found === undefined) return;
      const { bytes, sizeBytes } = await this.#files.read(this.#sandbox, path, {});
      const chunks: Buffer[] = [];
      // Behind a link, or in /proc, the size is known only at the end.
      if (sizeBytes < 0) for await (const chunk of bytes) chunks.push(chunk);
      const whole = Buffer.concat(chunks);
      yield {
        path: '',
        type: 'file',
        mode: found.kind === 'symlink' ? 0o755 : Number.parseInt(found.mode, 8),
        uid: found.uid,
        gid: found.gid,
        mtime: new Date(found.modified_at),
        size: sizeBytes < 0 ? whole.length : sizeBytes,
        link: '',
        content: () => (sizeBytes < 0 ? (Readable.from([whole]) as AsyncIterable<Buffer>) : bytes),
      };
      return;
    }
    yield* tarItems(await this.#files.pack(this.#sandbox, path));
  }

  async unpack(
    directory: string,
    tar: AsyncIterable<Uint8Array>,
    options: UnpackOptions = {},
  ): Promise<void> {
    await this.#files.unpack(this.#sandbox, directory, tar, options);
  }

  async stat(path: string): Promise<FileInfo | undefined> {
    return this.#files.stat(this.#sandbox, path).catch((error: unknown) => {
      if (error instanceof CoppiceError && error.code === 'not_found') return undefined;
      throw error;
    });
  }

  /** Empty where there is none. */
  async text(path: string): Promise<string> {
    if ((await this.stat(path)) === undefined) return '';
    const chunks: Buffer[] = [];
    for await (const chunk of (await this.#files.read(this.#sandbox, path, { length: 1 << 20 })).bytes)
      chunks.push(chunk);
    return Buffer.concat(chunks).toString('utf8');
  }

  async write(path: string, bytes: Buffer, options: { mode?: string; owner?: string } = {}): Promise<void> {
    const source = Readable.from([bytes]) as AsyncIterable<Buffer>;
    await this.#files.write(this.#sandbox, { path, parents: true, ...options }, source);
  }

  makeDirectory(path: string, mode?: string): Promise<void> {
    return this.#files.makeDirectory(this.#sandbox, { path, parents: true, mode });
  }

  /** Gives a directory that is there another mode and owner. */
  async own(path: string, mode: number, uid: number, gid: number): Promise<void> {
    const parent = posix.dirname(path);
    await this.remove(path);
    await this.unpack(parent, one({ name: posix.basename(path), type: 'directory', mode, uid, gid }));
  }

  async link(path: string, target: string): Promise<void> {
    const header = { name: posix.basename(path), type: 'symlink', linkname: target } as const;
    await this.unpack(posix.dirname(path), one(header));
  }

  async pack(path: string): Promise<AsyncIterable<Buffer>> {
    return this.#files.pack(this.#sandbox, path);
  }

  remove(path: string): Promise<void> {
    return this.#files.remove(this.#sandbox, path, true);
  }

  list(path: string): Promise<{ entries: FileInfo[] }> {
    return this.#files.list(this.#sandbox, path, { depth: 1, limit: listLimit });
  }
}

/** A tar of one entry without content. */
function one(header: Partial<Header> & { name: string }): AsyncIterable<Buffer> {
  const packing = pack();
  packing.entry({ mtime: new Date(0), ...header }, '');
  packing.finalize();
  return packing as unknown as AsyncIterable<Buffer>;
}
