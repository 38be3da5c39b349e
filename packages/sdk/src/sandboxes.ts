import type { RouteQuery, Sandbox as SandboxInfo } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { CreateOptions } from './options.ts';
import { Sandbox } from './sandbox.ts';

export class Sandboxes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async create({ signal, ...body }: CreateOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#caller, await this.#caller.call('createSandbox', { body, signal }));
  }

  async list({ signal, ...query }: RouteQuery<'listSandboxes'> & CallOptions = {}): Promise<SandboxInfo[]> {
    return (await this.#caller.call('listSandboxes', { query, signal })).items;
  }

  /** By id or name. */
  async get(ref: string, { signal }: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(
      this.#caller,
      await this.#caller.call('getSandbox', { params: { sandbox: ref }, signal }),
    );
  }
}
