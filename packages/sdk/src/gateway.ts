import type { Budget, RouteBody, RouteQuery, Secret } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Keys of models and other secrets. Their values go in and never come out. */
export class Secrets {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** With `use` it is put into requests of sandboxes that allow `secret:NAME`; without, it stays where it was put before. */
  async set(
    name: string,
    value: string,
    { signal, ...rest }: CallOptions & Pick<RouteBody<'setSecret'>, 'use'> = {},
  ): Promise<void> {
    await this.#caller.call('setSecret', { params: { secret: name }, body: { value, ...rest }, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<Secret[]> {
    return (await this.#caller.call('listSecrets', { signal })).items;
  }

  /** Seals every secret with another key: a fresh key file, or what the command of the key prints now. */
  async rekey({ signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('rekeySecrets', { signal });
  }

  async remove(name: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeSecret', { params: { secret: name }, signal });
  }
}

/** Limits on what calls to models may take. */
export class Budgets {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  set(budget: RouteBody<'setBudget'>, { signal }: CallOptions = {}): Promise<Budget> {
    return this.#caller.call('setBudget', { body: budget, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<Budget[]> {
    return (await this.#caller.call('listBudgets', { signal })).items;
  }

  async remove(key: RouteQuery<'removeBudget'>, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeBudget', { query: key, signal });
  }
}
