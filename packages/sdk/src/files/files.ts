import { Readable } from 'node:stream';
import type { FileEvent, FileInfo, RouteResult } from '@coppice/protocol';
import type { Caller, CallOptions } from '../connection/caller.ts';
import type { Progress } from './progress.ts';

type FileData = string | Uint8Array | AsyncIterable<Uint8Array>;

interface Range {
  readonly offset?: number;
  readonly length?: number;
}
interface WriteOptions extends CallOptions {
  /** Octal, such as '644'. */
  readonly mode?: string;
  /** `user` or `user:group` of the sandbox. */
  readonly owner?: string;
  /** Make the directories above it; default true. */
  readonly parents?: boolean;
  /** Of a stream, when it is known. */
  readonly sizeBytes?: number;
}
interface TransferOptions extends CallOptions {
  readonly onProgress?: Progress;
}

/** Files of one sandbox. Paths are resolved inside it; relative ones from the home directory. */
export class Files {
  readonly #caller: Caller;
  readonly #params: { readonly sandbox: string };

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#params = { sandbox };
  }

  async read(path: string, options: Range & CallOptions = {}): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for await (const chunk of this.readStream(path, options)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  async readText(path: string, options: Range & CallOptions = {}): Promise<string> {
    return (await this.read(path, options)).toString();
  }

  /** The content as it comes, for files of any size. */
  readStream(
    path: string,
    { signal, ...range }: Range & CallOptions = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    return this.#caller.bytes('readFile', { params: this.#params, query: { path, ...range }, signal });
  }

  /** Readers see the old or the new file, never half of one. */
  write(path: string, data: FileData, options: WriteOptions = {}): Promise<RouteResult<'writeFile'>> {
    const { signal, sizeBytes, parents, ...rest } = options;
    const whole = typeof data === 'string' || data instanceof Uint8Array ? Buffer.from(data) : undefined;
    return this.#caller.call('writeFile', {
      params: this.#params,
      query: { path, ...rest, ...(parents === undefined ? {} : { parents: parents ? 'true' : 'false' }) },
      upload: whole === undefined ? Readable.from(data, { objectMode: false }) : oneChunk(whole),
      uploadBytes: whole?.length ?? sizeBytes,
      signal,
    });
  }

  edit(
    path: string,
    oldString: string,
    newString: string,
    { replaceAll = false, signal }: { readonly replaceAll?: boolean } & CallOptions = {},
  ): Promise<RouteResult<'editFile'>> {
    const body = { path, old_string: oldString, new_string: newString, replace_all: replaceAll };
    return this.#caller.call('editFile', { params: this.#params, body, signal });
  }

  list(
    path: string,
    { signal, ...query }: { readonly depth?: number; readonly limit?: number } & CallOptions = {},
  ): Promise<RouteResult<'listFiles'>> {
    return this.#caller.call('listFiles', { params: this.#params, query: { path, ...query }, signal });
  }

  stat(path: string, { signal }: CallOptions = {}): Promise<FileInfo> {
    return this.#caller.call('statFile', { params: this.#params, query: { path }, signal });
  }

  async move(from: string, to: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('moveFile', { params: this.#params, body: { from, to }, signal });
  }

  async makeDirectory(
    path: string,
    { signal, ...rest }: { readonly parents?: boolean; readonly mode?: string } & CallOptions = {},
  ): Promise<void> {
    await this.#caller.call('makeDirectory', { params: this.#params, body: { path, ...rest }, signal });
  }

  async remove(
    path: string,
    { recursive = false, signal }: { readonly recursive?: boolean } & CallOptions = {},
  ): Promise<void> {
    const query = { path, recursive: recursive ? 'true' : 'false' } as const;
    await this.#caller.call('removeFile', { params: this.#params, query, signal });
  }

  /** Changes below a path until the loop is left or the signal fires. */
  async *watch(
    path: string,
    { recursive = true, signal }: { readonly recursive?: boolean } & CallOptions = {},
  ): AsyncGenerator<FileEvent, void, undefined> {
    const query = { path, recursive: recursive ? 'true' : 'false' } as const;
    for await (const { event, data } of this.#caller.events('watchFiles', {
      params: this.#params,
      query,
      signal,
    })) {
      if (event !== 'ready') yield JSON.parse(data) as FileEvent;
    }
  }

  /** Copies a directory of this machine into a directory of the sandbox, which is made when it is not there. */
  async uploadDirectory(
    from: string,
    to: string,
    { signal, onProgress }: TransferOptions = {},
  ): Promise<RouteResult<'uploadArchive'>> {
    // Loaded when it is used: most clients never move a directory.
    const { packDirectory } = await import('./pack-directory.ts');
    await this.makeDirectory(to, { signal });
    return this.unpack(to, packDirectory(from, onProgress), { signal });
  }

  /** Copies a directory of the sandbox into a directory of this machine, which is made when it is not there. */
  async downloadDirectory(
    from: string,
    to: string,
    { signal, onProgress }: TransferOptions = {},
  ): Promise<{ files: number; bytes: number }> {
    const { unpackDirectory } = await import('./unpack-directory.ts');
    return unpackDirectory(this.archive(from, { signal }), to, onProgress);
  }

  /** A directory as a tar. */
  archive(path: string, { signal }: CallOptions = {}): AsyncGenerator<Buffer, void, undefined> {
    return this.#caller.bytes('downloadArchive', { params: this.#params, query: { path }, signal });
  }

  /** Unpacks a tar into a directory. */
  unpack(
    path: string,
    tar: AsyncIterable<Uint8Array>,
    { signal }: CallOptions = {},
  ): Promise<RouteResult<'uploadArchive'>> {
    return this.#caller.call('uploadArchive', {
      params: this.#params,
      query: { path },
      upload: tar instanceof Readable ? tar : Readable.from(tar, { objectMode: false }),
      signal,
    });
  }
}

const oneChunk = (data: Buffer): Readable =>
  new Readable({
    read() {
      this.push(data.length === 0 ? null : data);
      if (data.length > 0) this.push(null);
    },
  });
