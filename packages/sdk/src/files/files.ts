import type { FileEvent, FileInfo, RouteResult } from '@coppice/protocol';
import { bytesOfText, joinBytes, textOfBytes } from '../connection/bytes.ts';
import type { Caller, CallOptions } from '../connection/caller.ts';
import type { UploadBody } from '../connection/transport.ts';
import { boundedBytes } from './bounds.ts';
import type { Progress, TakeOut } from './progress.ts';

type FileData = string | UploadBody;

interface Range {
  readonly offset?: number;
  readonly length?: number;
}
interface ReadOptions extends Range, CallOptions {
  /** Fails where there is more: a sandbox decides how large a file is, and some have no end. */
  readonly maxBytes?: number;
}
interface WriteOptions extends CallOptions {
  /** Octal, such as '644'. */
  readonly mode?: string;
  /** `user` or `user:group` of the sandbox. */
  readonly owner?: string;
  /** Make the directories above it; default true. */
  readonly parents?: boolean;
  /** Of a stream, when it is known. */
  readonly size_bytes?: number;
}
interface TransferOptions extends CallOptions {
  readonly onProgress?: Progress;
}

const inMemoryBytes = 1024 ** 3;

/** Files of one sandbox. Paths are resolved inside it; relative ones from the home directory. */
export class Files {
  readonly #caller: Caller;
  readonly #params: { readonly sandbox: string };

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#params = { sandbox };
  }

  /** The content as a whole: 1 GiB at most, unless `maxBytes` says otherwise. */
  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.readStream(path, { maxBytes: inMemoryBytes, ...options }))
      chunks.push(chunk);
    return joinBytes(chunks);
  }

  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return textOfBytes(await this.read(path, options));
  }

  /** The content as it comes, for files of any size. */
  readStream(
    path: string,
    { signal, maxBytes, ...range }: ReadOptions = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const content = this.#caller.bytes('readFile', {
      params: this.#params,
      query: { path, ...range },
      signal,
    });
    return maxBytes === undefined ? content : boundedBytes(content, maxBytes);
  }

  /** Readers see the old or the new file, never half of one. */
  write(path: string, data: FileData, options: WriteOptions = {}): Promise<RouteResult<'writeFile'>> {
    const { signal, size_bytes: uploadBytes, parents, ...rest } = options;
    return this.#caller.call('writeFile', {
      params: this.#params,
      query: { path, ...rest, ...(parents === undefined ? {} : { parents: parents ? 'true' : 'false' }) },
      upload: typeof data === 'string' ? bytesOfText(data) : data,
      uploadBytes,
      signal,
    });
  }

  edit(
    path: string,
    oldString: string,
    newString: string,
    { replace_all = false, signal }: { readonly replace_all?: boolean } & CallOptions = {},
  ): Promise<RouteResult<'editFile'>> {
    const body = { path, old_string: oldString, new_string: newString, replace_all };
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
    const directories = await this.#caller.transport.directories();
    await this.makeDirectory(to, { signal });
    return this.unpack(to, directories.pack(from, onProgress), { signal });
  }

  /** Copies a directory of the sandbox into a directory of this machine, which is made when it is not there. */
  async downloadDirectory(
    from: string,
    to: string,
    { signal, ...options }: TakeOut & CallOptions = {},
  ): Promise<{ files: number; bytes: number }> {
    const directories = await this.#caller.transport.directories();
    return directories.unpack(this.archive(from, { signal }), to, options);
  }

  /** A directory as a tar. */
  archive(path: string, { signal }: CallOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#caller.bytes('downloadArchive', { params: this.#params, query: { path }, signal });
  }

  /** Unpacks a tar into a directory. */
  unpack(path: string, tar: UploadBody, { signal }: CallOptions = {}): Promise<RouteResult<'uploadArchive'>> {
    return this.#caller.call('uploadArchive', {
      params: this.#params,
      query: { path },
      upload: tar,
      signal,
    });
  }
}
