import { CoppiceError, type GatewayEvent } from '@coppice/protocol';
import { z } from 'zod';
import type { LedgerDatabase } from '../ledger/open-ledger-file.ts';
import type { Caller } from '../models/caller.ts';
import {
  type Budget,
  type BudgetInput,
  type BudgetKey,
  type BudgetState,
  budgetSchema,
  describeSpent,
  spentPercent,
} from './budget.ts';
import { BudgetTable } from './budget-table.ts';

/** What a call wants to take. */
export interface Ask {
  readonly caller: Caller;
  readonly inputTokens: number;
  /** What answers of this run usually take. */
  readonly usualOutput: number;
  /** The longest answer that the request allows, all answers together. */
  readonly maxOutput: number;
  /** An answer of fewer tokens is not worth the call. */
  readonly leastOutput: number;
  /** Undefined where the model has no price: then no budget of money can hold it. */
  readonly price: { readonly inputMicros: number; readonly microsPerOutput: number } | undefined;
}

export interface Grant {
  /** The longest answer that fits; less than was asked for where the budget is short. */
  readonly maxOutput: number;
  readonly heldTokens: number;
  readonly heldMicros: number;
}

interface Hold {
  readonly caller: Caller;
  readonly tokens: number;
  readonly micros: number;
  readonly day: string;
}

interface Account {
  readonly budget: Budget;
  /** The day that the sums are of; empty for a budget of all days. */
  day: string;
  announced: string;
  spentTokens: number;
  spentMicros: number;
  heldTokens: number;
  heldMicros: number;
}

/** One call gets at most this part of what is left, so that others can run beside it. */
const share = 8;

/**
 * Limits on what calls may take. A call holds the most that it can take before its request leaves: the estimate of its
 * input and the longest answer that it is granted. So calls that run together cannot overspend together; only an input
 * that was estimated too low can go over a limit, once for each call that ran.
 */
export class Budgets {
  readonly #table: BudgetTable;
  readonly #accounts = new Map<string, Account>();
  readonly #holds = new Map<number, Hold>();
  readonly #waiting = new Set<() => void>();
  readonly #emit: (event: GatewayEvent) => void;
  readonly #now: () => number;

  constructor(
    database: LedgerDatabase,
    options: { readonly emit?: (event: GatewayEvent) => void; readonly now?: () => number } = {},
  ) {
    this.#table = new BudgetTable(database);
    this.#emit = options.emit ?? (() => {});
    this.#now = options.now ?? Date.now;
    for (const { announced, ...budget } of this.#table.all())
      this.#accounts.set(keyOf(budget), emptyAccount(budget, announced));
  }

  /** Makes a budget, or changes the one of the same scope, name and period. */
  set(input: BudgetInput): BudgetState {
    const parsed = budgetSchema.safeParse(input);
    if (!parsed.success)
      throw new CoppiceError('invalid_argument', `this is no budget: ${z.prettifyError(parsed.error)}`);
    const account = emptyAccount(parsed.data, '');
    this.#accounts.set(keyOf(parsed.data), account);
    const state = this.#state(account);
    // What is already spent is no news.
    account.announced = announcement(account.day, levelOf(spentPercent(state)));
    this.#table.put(parsed.data, account.announced);
    this.#wake();
    return state;
  }

  remove(key: BudgetKey): boolean {
    this.#accounts.delete(keyOf(key));
    const wasThere = this.#table.remove(key);
    this.#wake();
    return wasThere;
  }

  list(): readonly BudgetState[] {
    return [...this.#accounts.values()].map((account) => this.#state(account));
  }

  /**
   * Grants a call what fits, or refuses it. `begin` runs at once with the grant, before anybody else is asked, and returns
   * the number of the call in the ledger. Where calls that run hold what is missing, this waits for them.
   */
  async reserve(ask: Ask, begin: (grant: Grant) => number, signal: AbortSignal): Promise<number> {
    for (;;) {
      const grant = this.#grant(ask);
      if (grant !== undefined) {
        const id = begin(grant);
        this.#hold(id, ask.caller, grant);
        return id;
      }
      await this.#change(signal);
    }
  }

  /** The call has ended, and this is what it took. */
  settle(id: number, tokens: number, micros: number): void {
    const hold = this.#holds.get(id);
    if (hold === undefined) return;
    this.#holds.delete(id);
    for (const account of this.#accountsOf(hold.caller)) {
      if (account.day !== '' && account.day !== hold.day) continue;
      account.heldTokens -= hold.tokens;
      account.heldMicros -= hold.micros;
      account.spentTokens += tokens;
      account.spentMicros += micros;
      this.#announce(account, hold.caller, levelOf(spentPercent(this.#state(account))));
    }
    this.#wake();
  }

  /** Undefined where it has to wait; throws where it will never fit. */
  #grant(ask: Ask): Grant | undefined {
    const accounts = this.#accountsOf(ask.caller);
    const usual = Math.min(ask.maxOutput, Math.max(ask.usualOutput, ask.leastOutput));
    let maxOutput = ask.maxOutput;
    for (const account of accounts) {
      const fits = this.#fits(account, ask);
      if (fits < usual) {
        if (this.#isHeldByOthers(account)) return undefined;
        if (fits < Math.min(ask.maxOutput, ask.leastOutput)) throw this.#refusal(account, ask.caller);
      }
      maxOutput = Math.min(maxOutput, Math.max(Math.floor(fits / share), Math.min(fits, usual)));
    }
    const heldOutput = accounts.length === 0 ? usual : maxOutput;
    return {
      maxOutput,
      heldTokens: ask.inputTokens + heldOutput,
      heldMicros:
        ask.price === undefined
          ? 0
          : Math.ceil(ask.price.inputMicros + heldOutput * ask.price.microsPerOutput),
    };
  }

  /** The longest answer that a budget still has room for; negative where not even the input fits. */
  #fits(account: Account, ask: Ask): number {
    const { budget } = account;
    let fits = Number.POSITIVE_INFINITY;
    if (budget.tokens !== null)
      fits = budget.tokens - account.spentTokens - account.heldTokens - ask.inputTokens;
    if (budget.micros !== null) {
      if (ask.price === undefined)
        throw new CoppiceError('forbidden', 'this model has no price, and a budget of money applies', {
          hint: 'Add it to the file of prices.',
        });
      const left = budget.micros - account.spentMicros - account.heldMicros - ask.price.inputMicros;
      // Where answers are free, there must still be something left.
      const room =
        ask.price.microsPerOutput === 0 ? (left > 0 ? ask.maxOutput : -1) : left / ask.price.microsPerOutput;
      fits = Math.min(fits, Math.floor(room));
    }
    return fits;
  }

  #isHeldByOthers(account: Account): boolean {
    return (
      (account.budget.tokens !== null && account.heldTokens > 0) ||
      (account.budget.micros !== null && account.heldMicros > 0)
    );
  }

  #refusal(account: Account, caller: Caller): CoppiceError {
    this.#announce(account, caller, 100);
    const state = this.#state(account);
    return new CoppiceError('limit_reached', describeSpent(state), {
      details: { scope: state.scope, name: state.name, period: state.period, action: state.action },
    });
  }

  #hold(id: number, caller: Caller, grant: Grant): void {
    this.#holds.set(id, {
      caller,
      tokens: grant.heldTokens,
      micros: grant.heldMicros,
      day: dayOf(this.#now()),
    });
    for (const account of this.#accountsOf(caller)) {
      account.heldTokens += grant.heldTokens;
      account.heldMicros += grant.heldMicros;
    }
  }

  /** The accounts that a call counts for, each with the sums of now. */
  #accountsOf(caller: Caller): readonly Account[] {
    const names: [BudgetKey['scope'], string | undefined][] = [
      ['sandbox', caller.sandbox],
      ['run', caller.run],
      ['agent', caller.agent],
      ['project', caller.project],
      ['home', ''],
    ];
    const accounts: Account[] = [];
    for (const [scope, name] of names) {
      if (name === undefined) continue;
      for (const period of ['ever', 'day'] as const) {
        const account = this.#accounts.get(keyOf({ scope, name, period }));
        if (account === undefined) continue;
        this.#refresh(account);
        accounts.push(account);
      }
    }
    return accounts;
  }

  /** Reads the sums from the ledger at first and whenever a day begins. */
  #refresh(account: Account): void {
    const today = account.budget.period === 'day' ? dayOf(this.#now()) : '';
    if (account.day === today) return;
    account.day = today;
    Object.assign(account, this.#table.sums(account.budget, today === '' ? 0 : Date.parse(today)));
  }

  #state(account: Account): BudgetState {
    this.#refresh(account);
    const { spentTokens, spentMicros, heldTokens, heldMicros } = account;
    return { ...account.budget, spentTokens, spentMicros, heldTokens, heldMicros };
  }

  /** Says each level once, also over restarts. */
  #announce(account: Account, caller: Caller, level: Level): void {
    const before = levelAnnounced(account.announced, account.day);
    if (level <= before) return;
    account.announced = announcement(account.day, level);
    const state = this.#state(account);
    const { scope, name, period, action, tokens, micros, spentTokens, spentMicros } = state;
    // Where nothing more fits before so much is spent, the end comes without a warning.
    const spent = levelOf(spentPercent(state));
    this.#table.put(account.budget, account.announced, () => {
      for (const percent of [75, 90, 100] as const) {
        if (percent <= before || percent > (percent === 100 ? level : spent)) continue;
        this.#emit({
          type: 'budget.threshold',
          sandbox: caller.sandbox,
          percent,
          ...{ scope, name, period, action, tokens, micros },
          spent_tokens: spentTokens,
          spent_micros: spentMicros,
        });
      }
    });
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Resolves when a call has ended or a budget was changed. */
  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(wake);
        reject(new CoppiceError('cancelled', 'nobody waits for this call any more'));
      };
      const wake = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      if (signal.aborted) leave();
      else {
        signal.addEventListener('abort', leave, { once: true });
        this.#waiting.add(wake);
      }
    });
  }
}

type Level = 0 | 75 | 90 | 100;

const levelOf = (percent: number): Level =>
  percent >= 100 ? 100 : percent >= 90 ? 90 : percent >= 75 ? 75 : 0;

const announcement = (day: string, level: Level): string => `${day}/${level}`;

const levelAnnounced = (announced: string, day: string): number =>
  announced.startsWith(`${day}/`) ? Number(announced.slice(day.length + 1)) : 0;

const keyOf = (key: BudgetKey): string => `${key.scope}/${key.period}/${key.name}`;

const dayOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10);

const unread = 'unread';

const emptyAccount = (budget: Budget, announced: string): Account => ({
  budget,
  day: unread,
  announced,
  spentTokens: 0,
  spentMicros: 0,
  heldTokens: 0,
  heldMicros: 0,
});
