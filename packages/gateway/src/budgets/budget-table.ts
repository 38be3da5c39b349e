import type { LedgerDatabase } from '../ledger/open-ledger-file.ts';
import type { Budget, BudgetKey, BudgetScope, BudgetState } from './budget.ts';

interface Row extends Budget {
  readonly announced: string;
}

interface Sums {
  readonly tokens: number | null;
  readonly micros: number | null;
}

/** The column of the ledger that says who a call counts for. */
const whose: Readonly<Record<BudgetScope, string>> = {
  sandbox: 'b.sandbox = :name',
  run: 'b.run = :name',
  agent: 'b.agent = :name',
  project: 'b.project = :name',
  home: ":name = ''",
};

/** Budgets as they are stored. What was spent and what is held is in the ledger, and in no second place. */
export class BudgetTable {
  readonly #database: LedgerDatabase;

  constructor(database: LedgerDatabase) {
    this.#database = database;
  }

  all(): readonly Row[] {
    return this.#database
      .prepare(
        'SELECT scope, name, period, tokens, micros, action, announced FROM budgets ORDER BY scope, name, period',
      )
      .all() as Row[];
  }

  /** `also` is written with it, or neither is. */
  put(budget: Budget, announced: string, also: () => void = () => {}): void {
    const statement = this.#database.prepare(
      `INSERT INTO budgets (scope, name, period, tokens, micros, action, announced)
       VALUES (:scope, :name, :period, :tokens, :micros, :action, :announced)
       ON CONFLICT (scope, name, period) DO UPDATE
       SET tokens = excluded.tokens, micros = excluded.micros, action = excluded.action, announced = excluded.announced`,
    );
    this.#database.transaction(() => {
      statement.run({ ...budget, announced });
      also();
    })();
  }

  remove(key: BudgetKey): boolean {
    const sql = 'DELETE FROM budgets WHERE scope = :scope AND name = :name AND period = :period';
    return (
      this.#database.prepare(sql).run({ scope: key.scope, name: key.name, period: key.period }).changes > 0
    );
  }

  /** What calls that began since then have taken, and what those that run hold. */
  sums(
    key: BudgetKey,
    sinceMs: number,
  ): Pick<BudgetState, 'spentTokens' | 'spentMicros' | 'heldTokens' | 'heldMicros'> {
    const filter = `${whose[key.scope]} AND b.at_ms >= :sinceMs`;
    const asked = { name: key.name, sinceMs };
    const spent = this.#database
      .prepare(
        `SELECT SUM(s.input + s.cache_read + s.cache_write_5m + s.cache_write_1h + s.output) AS tokens,
           SUM(s.cost_micros) AS micros
         FROM begun b JOIN settled s USING (id) WHERE ${filter}`,
      )
      .get(asked) as Sums;
    const held = this.#database
      .prepare(
        `SELECT SUM(b.held_tokens) AS tokens, SUM(b.held_micros) AS micros
         FROM begun b LEFT JOIN settled s USING (id) WHERE s.id IS NULL AND ${filter}`,
      )
      .get(asked) as Sums;
    return {
      spentTokens: spent.tokens ?? 0,
      spentMicros: spent.micros ?? 0,
      heldTokens: held.tokens ?? 0,
      heldMicros: held.micros ?? 0,
    };
  }
}
