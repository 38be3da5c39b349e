import {
  type Budget,
  budgetSchema,
  CoppiceError,
  type Costs,
  type costsQuery,
  costsSchema,
  type removeBudgetQuery,
  type Secret,
  secretSchema,
  type setBudgetSchema,
} from '@coppice/protocol';
import type { NftNetwork } from '@coppice/runtime';
import { z } from 'zod';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { GatewayProcess } from './gateway-process.ts';

export interface GatewayServiceParts {
  readonly gateway: GatewayProcess;
  readonly network: NftNetwork;
  readonly finder: SandboxFinder;
}

const itemsOf = <T extends z.ZodType>(item: T) => z.object({ items: z.array(item) });

/** Keys, costs and budgets, which the gateway keeps. */
export class GatewayService {
  readonly #parts: GatewayServiceParts;

  constructor(parts: GatewayServiceParts) {
    this.#parts = parts;
  }

  async setSecret(name: string, value: string): Promise<void> {
    await this.#ask('PUT', `/secrets/${name}`, { value });
  }

  async listSecrets(): Promise<Secret[]> {
    // Whoever only looks starts no process.
    if (!this.#parts.gateway.isUsed) return [];
    return itemsOf(secretSchema).parse(await this.#ask('GET', '/secrets')).items;
  }

  async removeSecret(name: string): Promise<void> {
    await this.#ask('DELETE', `/secrets/${name}`);
  }

  async costs({ by, since_ms, until_ms, sandbox, ...where }: z.output<typeof costsQuery>): Promise<Costs> {
    const named = Object.entries({
      ...where,
      sandbox: sandbox === undefined ? undefined : this.#idOf(sandbox),
    });
    return costsSchema.parse(
      await this.#ask('POST', '/costs', {
        by: by === '' ? [] : by.split(','),
        ...(since_ms === undefined ? {} : { sinceMs: since_ms }),
        ...(until_ms === undefined ? {} : { untilMs: until_ms }),
        where: Object.fromEntries(named.filter(([, value]) => value !== undefined)),
      }),
    );
  }

  async setBudget(input: z.output<typeof setBudgetSchema>): Promise<Budget> {
    return budgetSchema.parse(await this.#ask('POST', '/budgets', this.#named(input)));
  }

  async listBudgets(): Promise<Budget[]> {
    if (!this.#parts.gateway.isUsed) return [];
    return itemsOf(budgetSchema).parse(await this.#ask('GET', '/budgets')).items;
  }

  async removeBudget(key: z.output<typeof removeBudgetQuery>): Promise<void> {
    const { removed } = await this.#ask<{ removed: boolean }>('DELETE', '/budgets', this.#named(key));
    if (!removed)
      throw new CoppiceError('not_found', `there is no such budget of ${key.scope} ${key.name}`.trimEnd(), {
        hint: 'List them: coppice budget ls',
      });
  }

  /** A budget of a sandbox is by its id, which outlives a change of its name. */
  #named<T extends { readonly scope: string; readonly name: string }>(input: T): T {
    return input.scope === 'sandbox' ? { ...input, name: this.#idOf(input.name) } : input;
  }

  /** One that is gone is named by its id: its costs stay. */
  #idOf(ref: string): string {
    return /^sb_[0-9a-z]{26}$/.test(ref) ? ref : this.#parts.finder.get(ref).id;
  }

  async #ask<T>(method: string, path: string, body?: object): Promise<T> {
    const { gateway, network } = this.#parts;
    return gateway.ask<T>(await network.gatewayPlace(), method, path, body);
  }
}
