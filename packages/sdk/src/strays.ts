import type { RouteBody, Snapshot, Stray } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Disks and snapshots that the database did not know when the daemon started. */
export class Strays {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal }: CallOptions = {}): Promise<Stray[]> {
    return (await this.#caller.call('listStrays', { signal })).items;
  }

  /** Its files become a snapshot. */
  keep(stray: string, { signal, ...body }: RouteBody<'keepStray'> & CallOptions = {}): Promise<Snapshot> {
    return this.#caller.call('keepStray', { params: { stray }, body, signal });
  }

  async delete(stray: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('deleteStray', { params: { stray }, signal });
  }
}
