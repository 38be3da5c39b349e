import {
  type Budget,
  budgetSchema,
  type Caller,
  CoppiceError,
  type Costs,
  type costsQuery,
  costsSchema,
  reaches,
  type removeBudgetQuery,
  type Scope,
  type Secret,
  secretSchema,
  type setBudgetSchema,
  type setSecretSchema,
} from '@coppice/protocol';
import type { NftNetwork } from '@coppice/runtime';
import { z } from 'zod';
import type { State } from '../db/state.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import type { GatewayFeed, GatewayListener } from './gateway-feed.ts';
import type { GatewayProcess } from './gateway-process.ts';

export interface GatewayServiceParts {
  readonly gateway: GatewayProcess;
  readonly network: NftNetwork;
  readonly finder: SandboxFinder;
  readonly state: State;
  readonly memory: MemoryPolicy;
  readonly feed: GatewayFeed;
}

const nothingSpent: Costs['total'] = {
  calls: 0,
  running: 0,
  input: 0,
  cache_read: 0,
  cache_write5m: 0,
  cache_write1h: 0,
  output: 0,
  reasoning: 0,
  cost_micros: 0,
  unpriced: 0,
  estimated: 0,
};

/** A gateway of an earlier version says no hosts. */
const trustSchema = z.object({ certificate: z.string(), hosts: z.array(z.string()).default([]) });
export type Trust = z.output<typeof trustSchema>;

type Where = Readonly<Partial<Record<'sandbox' | 'run' | 'agent' | 'project' | 'model', string | undefined>>>;

/** What is asked for, and of that only what the scope may know of. */
const narrowed = (where: Where, scope: Scope): Where => {
  const held: Where = scopeHolds(scope);
  for (const [key, value] of Object.entries(held)) {
    const asked = where[key as keyof Where];
    if (asked !== undefined && asked !== value)
      throw new CoppiceError('forbidden', `this token sees the costs of the ${key} ${value} only`);
  }
  return { ...where, ...held };
};

const scopeHolds = (scope: Scope): Where => {
  switch (scope.kind) {
    case 'admin':
      return {};
    case 'project':
      return { project: scope.project };
    case 'run':
      return { run: scope.runId };
    case 'sandbox':
      return { sandbox: scope.sandboxId };
    case 'branch':
      throw new CoppiceError('forbidden', 'the token of a branch sees no costs');
  }
};

const itemsOf = <T extends z.ZodType>(item: T) => z.object({ items: z.array(item) });

/** Keys, costs and budgets, which the gateway keeps. */
export class GatewayService {
  readonly #parts: GatewayServiceParts;
  #secretChanges = 0;

  constructor(parts: GatewayServiceParts) {
    this.#parts = parts;
  }

  /** From its next call to a model on. Nobody inside can change it, and a fork does not have it. */
  async setCaller(ref: string, caller: Caller): Promise<Caller> {
    const { finder, state, gateway } = this.#parts;
    const { id } = finder.get(ref);
    state.gateway.setCaller(id, caller);
    await gateway.tellCaller(id);
    return caller;
  }

  async callerOf(ref: string): Promise<Caller> {
    return this.#parts.state.gateway.callerOf(this.#parts.finder.get(ref).id);
  }

  /** Each event of the gateway exactly once, over restarts of both. See `GatewayListener`. */
  onCall(listener: GatewayListener): () => void {
    return this.#parts.feed.onCall(listener);
  }

  async setSecret(name: string, secret: z.output<typeof setSecretSchema>): Promise<void> {
    await this.#ask('PUT', `/secrets/${name}`, secret);
    this.#secretChanges += 1;
  }

  async rekey(): Promise<void> {
    const { gateway, network } = this.#parts;
    await gateway.rekey(await network.gatewayPlace());
  }

  /** What a sandbox that may use these secrets trusts, and the hosts that this holds for. */
  async trustFor(secrets: readonly string[]): Promise<Trust> {
    const query = new URLSearchParams(secrets.map((secret) => ['secret', secret]));
    return trustSchema.parse(await this.#ask('GET', `/authority?${query}`));
  }

  /** Changes with every change of a secret. */
  get secretChanges(): number {
    return this.#secretChanges;
  }

  async listSecrets(): Promise<Secret[]> {
    if (!this.#parts.gateway.isUsed) return [];
    return itemsOf(secretSchema).parse(await this.#ask('GET', '/secrets')).items;
  }

  async removeSecret(name: string): Promise<void> {
    await this.#ask('DELETE', `/secrets/${name}`);
    this.#secretChanges += 1;
  }

  /** Of the calls that the scope may know of: those of its sandbox or its run, or those that its project pays. */
  async costs(
    { by, since_ms, until_ms, sandbox, ...where }: z.output<typeof costsQuery>,
    scope: Scope,
  ): Promise<Costs> {
    // Whoever only looks starts no process.
    if (!this.#parts.gateway.isUsed)
      return costsSchema.parse({ by: by === '' ? [] : by.split(','), rows: [], total: nothingSpent });
    const named = Object.entries(
      narrowed({ ...where, sandbox: sandbox === undefined ? undefined : this.#idOf(sandbox) }, scope),
    );
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
    const { finder, memory } = this.#parts;
    // A pause that could never be is refused now and not when it is needed.
    const record =
      input.scope === 'sandbox' && input.action === 'pause' ? finder.find(input.name) : undefined;
    if (record !== undefined)
      await memory.assertKeeps(
        record,
        'Choose `--then stop`, which ends its processes, or the driver gvisor.',
      );
    return budgetSchema.parse(await this.#ask('POST', '/budgets', this.#named(input)));
  }

  /** Those that hold for nobody beside what the scope reaches. */
  async listBudgets(scope: Scope): Promise<Budget[]> {
    if (!this.#parts.gateway.isUsed) return [];
    const { items } = itemsOf(budgetSchema).parse(await this.#ask('GET', '/budgets'));
    return items.filter((budget) => this.#isReached(budget, scope));
  }

  #isReached({ scope: of, name }: Budget, scope: Scope): boolean {
    if (scope.kind === 'admin') return true;
    if (of === 'sandbox') {
      const record = this.#parts.state.sandboxes.byId(name);
      return record !== undefined && reaches(scope, { ...record, sandboxId: record.id });
    }
    if (of === 'project') return scope.kind === 'project' && scope.project === name;
    if (of !== 'run') return false;
    return scope.kind === 'run'
      ? scope.runId === name
      : scope.kind === 'project' && this.#parts.state.runs.byId(name)?.spec.project === scope.project;
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
