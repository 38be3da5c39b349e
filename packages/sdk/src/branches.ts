import type { Branch, RouteBody, RouteQuery } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** From a ticket to a merge. Every call may be repeated: it goes on where the last one ended. */
export class Branches {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** A branch for the ticket, a sandbox that has it, and an agent there where `run` says what to do. */
  start(input: RouteBody<'startBranch'>, { signal }: CallOptions = {}): Promise<Branch> {
    return this.#caller.call('startBranch', { body: input, signal });
  }

  /** Commits of the sandbox to the forge, and a pull request. */
  finish(input: RouteBody<'finishBranch'>, { signal }: CallOptions = {}): Promise<Branch> {
    return this.#caller.call('finishBranch', { body: input, signal });
  }

  /** `success` says whether it is merged; a conflict is an answer. */
  merge(input: RouteBody<'mergeBranch'>, { signal }: CallOptions = {}): Promise<Branch> {
    return this.#caller.call('mergeBranch', { body: input, signal });
  }

  status(query: RouteQuery<'branchStatus'>, { signal }: CallOptions = {}): Promise<Branch> {
    return this.#caller.call('branchStatus', { query, signal });
  }

  async list({ signal, ...query }: CallOptions & RouteQuery<'listBranches'> = {}): Promise<Branch[]> {
    return (await this.#caller.call('listBranches', { query, signal })).items;
  }
}
