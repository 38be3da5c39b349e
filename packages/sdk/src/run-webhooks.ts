import type { RouteBody, RunWebhook } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Events of runs, posted to programs. */
export class RunWebhooks {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Of one run or of all; the answer has the secret that posts are signed with, which is not shown again. */
  add(webhook: RouteBody<'addRunWebhook'>, { signal }: CallOptions = {}): Promise<RunWebhook> {
    return this.#caller.call('addRunWebhook', { body: webhook, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<RunWebhook[]> {
    return (await this.#caller.call('listRunWebhooks', { signal })).items;
  }

  /** One that was stopped goes on; with `after`, events are sent again from there. */
  resume(
    webhook: string,
    { signal, ...body }: RouteBody<'resumeRunWebhook'> & CallOptions = {},
  ): Promise<RunWebhook> {
    return this.#caller.call('resumeRunWebhook', { params: { webhook }, body, signal });
  }

  async remove(webhook: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeRunWebhook', { params: { webhook }, signal });
  }
}
