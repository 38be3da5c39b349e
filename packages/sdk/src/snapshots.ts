import type { Imported, RouteBody, RouteQuery, Snapshot } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { UploadBody } from './connection/transport.ts';
import { type Forks, forksOf } from './sandbox.ts';

export interface ExportOptions extends CallOptions {
  readonly memory?: boolean;
  readonly image?: boolean;
  readonly env?: boolean;
}

const flag = (on: boolean): 'true' | 'false' => (on ? 'true' : 'false');

/** Snapshots of all sandboxes, also of those that are gone. References: an id, or `sandbox:name`. */
export class Snapshots {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal, ...query }: RouteQuery<'listSnapshots'> & CallOptions = {}): Promise<Snapshot[]> {
    return (await this.#caller.call('listSnapshots', { query, signal })).items;
  }

  get(snapshot: string, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#caller.call('getSnapshot', { params: { snapshot }, signal });
  }

  /** Keeps an automatic one for good; gives any another name or note. */
  keep(
    snapshot: string,
    { signal, ...body }: RouteBody<'updateSnapshot'> & CallOptions = {},
  ): Promise<Snapshot> {
    return this.#caller.call('updateSnapshot', { params: { snapshot }, body, signal });
  }

  async delete(snapshot: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('deleteSnapshot', { params: { snapshot }, signal });
  }

  async fork(
    snapshot: string,
    { signal, ...body }: RouteBody<'forkSnapshot'> & CallOptions = {},
  ): Promise<Forks> {
    return forksOf(
      this.#caller,
      await this.#caller.call('forkSnapshot', { params: { snapshot }, body, signal }),
    );
  }

  /**
   * One file that `import` takes in on this machine or another: with the memory of a checkpoint and with its image unless
   * told otherwise, without the values of its environment unless asked for.
   */
  export(
    snapshot: string,
    { memory = true, image = true, env = false, signal }: ExportOptions = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const query = { memory: flag(memory), image: flag(image), env: flag(env) };
    return this.#caller.bytes('exportSnapshot', { params: { snapshot }, query, signal });
  }

  import(
    file: UploadBody,
    options: {
      readonly name?: string;
      readonly diskOnly?: boolean;
      readonly sizeBytes?: number;
    } & CallOptions = {},
  ): Promise<Imported> {
    const { name, diskOnly = false, sizeBytes, signal } = options;
    return this.#caller.call('importSnapshot', {
      query: { ...(name === undefined ? {} : { name }), disk_only: flag(diskOnly) },
      upload: file,
      uploadBytes: sizeBytes,
      signal,
    });
  }
}
