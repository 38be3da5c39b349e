import type { Imported, RouteBody, RouteQuery, Snapshot } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { UploadBody } from './connection/transport.ts';
import { type ExportOptions, exportSnapshot } from './export-snapshot.ts';
import { type Forks, forksOf, type SnapshotActions, snapshotOf } from './sandbox.ts';

/** Snapshots of all sandboxes, also of those that are gone. References: an id, or `sandbox:name`. */
export class Snapshots {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({
    signal,
    ...query
  }: RouteQuery<'listSnapshots'> & CallOptions = {}): Promise<(Snapshot & SnapshotActions)[]> {
    const { items } = await this.#caller.call('listSnapshots', { query, signal });
    return items.map((snapshot) => snapshotOf(this.#caller, snapshot));
  }

  async get(snapshot: string, { signal }: CallOptions = {}): Promise<Snapshot & SnapshotActions> {
    return snapshotOf(this.#caller, await this.#caller.call('getSnapshot', { params: { snapshot }, signal }));
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
  export(snapshot: string, options: ExportOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return exportSnapshot(this.#caller, snapshot, options);
  }

  /** What a file for this machine need not carry, by digest: `have` of an export elsewhere. */
  async importContents({ signal }: CallOptions = {}): Promise<string[]> {
    return (await this.#caller.call('importContents', { signal })).have;
  }

  import(
    file: UploadBody,
    options: {
      readonly name?: string;
      readonly disk_only?: boolean;
      readonly size_bytes?: number;
    } & CallOptions = {},
  ): Promise<Imported> {
    const { name, disk_only = false, size_bytes: uploadBytes, signal } = options;
    return this.#caller.call('importSnapshot', {
      query: { ...(name === undefined ? {} : { name }), disk_only: disk_only ? 'true' : 'false' },
      upload: file,
      uploadBytes,
      signal,
    });
  }
}
