import type { PrepareEvent, RouteBody, RouteQuery, Snapshot, UsageEntry } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import { lastEvent } from './connection/last-event.ts';
import type { CreateOptions } from './options.ts';
import { type ListedSandbox, listedSandbox, Sandbox } from './sandbox.ts';

export type PrepareOptions = Omit<RouteBody<'prepareSandbox'>, 'name'> &
  CallOptions & { readonly onProgress?: (message: string) => void };

export interface Prepared {
  readonly sandbox: Sandbox;
  /** Named `golden`. */
  readonly snapshot: Snapshot;
  /** It was there already: nothing was run. */
  readonly reused: boolean;
}

export class Sandboxes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async create({ signal, ...body }: CreateOptions = {}): Promise<Sandbox> {
    const info = await this.#caller.call('createSandbox', { body, signal });
    return new Sandbox(this.#caller, info.id, info);
  }

  /** Creates a sandbox, sets it up and snapshots it as `golden`; called again it answers with what is there. */
  async prepare(name: string, { signal, onProgress, ...rest }: PrepareOptions = {}): Promise<Prepared> {
    const { sandbox, snapshot, reused } = await lastEvent<PrepareEvent, 'prepared'>(
      this.#caller.events('prepareSandbox', { body: { name, ...rest }, signal }),
      'prepared',
      ({ message }) => onProgress?.(message),
    );
    return { sandbox: new Sandbox(this.#caller, sandbox.id, sandbox), snapshot, reused };
  }

  async list({ signal, ...query }: RouteQuery<'listSandboxes'> & CallOptions = {}): Promise<ListedSandbox[]> {
    const { items } = await this.#caller.call('listSandboxes', { query, signal });
    return items.map((info) => listedSandbox(this.#caller, info));
  }

  /** What they use now: processor, memory, disk and processes; cheap enough for every second. */
  async usage({ signal, ...query }: RouteQuery<'listUsage'> & CallOptions = {}): Promise<UsageEntry[]> {
    return (await this.#caller.call('listUsage', { query, signal })).items;
  }

  /** By id or name. */
  async get(ref: string, { signal }: CallOptions = {}): Promise<Sandbox> {
    const info = await this.#caller.call('getSandbox', { params: { sandbox: ref }, signal });
    return new Sandbox(this.#caller, info.id, info);
  }

  /** A handle by id or name, without asking whether it is there: saves a round trip where one call is all. */
  at(ref: string): Sandbox {
    return new Sandbox(this.#caller, ref);
  }
}
