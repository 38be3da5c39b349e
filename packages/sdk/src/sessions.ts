import type { AdoptedSandbox, Session } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** What clients of MCP own. */
export class Sessions {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal }: CallOptions = {}): Promise<Session[]> {
    return (await this.#caller.call('listSessions', { signal })).items;
  }

  /** Makes a sandbox a session's own; from a session that is at work only by force. */
  adopt(
    sandbox: string,
    session: string,
    { force, signal }: { readonly force?: boolean } & CallOptions = {},
  ): Promise<AdoptedSandbox> {
    return this.#caller.call('adoptSandbox', { params: { sandbox }, body: { session, force }, signal });
  }
}
