import type { RouteBody, RouteResult, Token } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

export class Tokens {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal }: CallOptions = {}): Promise<Token[]> {
    return (await this.#caller.call('listTokens', { signal })).items;
  }

  /** The secret is in this answer only. */
  create({ signal, ...body }: RouteBody<'createToken'> & CallOptions): Promise<RouteResult<'createToken'>> {
    return this.#caller.call('createToken', { body, signal });
  }

  async revoke(token: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('revokeToken', { params: { token }, signal });
  }
}
