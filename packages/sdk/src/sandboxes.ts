import type { RouteQuery, Sandbox as SandboxInfo, UsageEntry } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { CreateOptions } from './options.ts';
import { Sandbox } from './sandbox.ts';

export class Sandboxes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async create({ signal, ...body }: CreateOptions = {}): Promise<Sandbox> {
    const info = await this.#caller.call('createSandbox', { body, signal });
    return new Sandbox(this.#caller, info.id, info);
  }

  async list({ signal, ...query }: RouteQuery<'listSandboxes'> & CallOptions = {}): Promise<SandboxInfo[]> {
    return (await this.#caller.call('listSandboxes', { query, signal })).items;
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
