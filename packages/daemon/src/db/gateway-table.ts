import type { Caller } from '@coppice/protocol';
import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

/** How far the events of the gateway were heard. */
export interface FeedPosition {
  readonly epoch: string;
  readonly seq: number;
}

/** What is to be done with a sandbox because a budget is used up. */
export interface Duty {
  readonly id: number;
  readonly sandboxId: string;
  readonly action: 'pause' | 'stop';
  readonly reason: string;
  /** Of the budget. */
  readonly scope: string;
  readonly name: string;
  readonly period: string;
}

/** What the daemon has to remember about the gateway. */
export class GatewayTable {
  readonly #database: SqliteDatabase;
  readonly #callerOf: Statement<[string], { project: string; body: string | null }>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#callerOf = database.prepare(
      `SELECT s.project, c.body FROM sandboxes s LEFT JOIN callers c ON c.sandbox_id = s.id WHERE s.id = ?`,
    );
  }

  /** The project that a sandbox belongs to pays, unless another was named. */
  callerOf(sandboxId: string): Caller {
    const row = this.#callerOf.get(sandboxId);
    if (row === undefined) return {};
    const named = row.body === null ? {} : (JSON.parse(row.body) as Caller);
    return { project: row.project, ...named };
  }

  /** Goes with its sandbox. */
  setCaller(sandboxId: string, caller: Caller): void {
    this.#database
      .prepare('INSERT OR REPLACE INTO callers (sandbox_id, body) VALUES (?, ?)')
      .run(sandboxId, JSON.stringify(caller));
  }

  position(): FeedPosition {
    return (
      this.#database
        .prepare<[], FeedPosition>('SELECT epoch, seq FROM gateway_position WHERE id = 1')
        .get() ?? { epoch: '', seq: 0 }
    );
  }

  setPosition({ epoch, seq }: FeedPosition): void {
    this.#database
      .prepare('INSERT OR REPLACE INTO gateway_position (id, epoch, seq) VALUES (1, ?, ?)')
      .run(epoch, seq);
  }

  addDuty(duty: Omit<Duty, 'id'>): void {
    this.#database
      .prepare(
        `INSERT INTO budget_duties (sandbox_id, action, reason, scope, name, period, tries)
         VALUES (@sandboxId, @action, @reason, @scope, @name, @period, 0)`,
      )
      .run(duty);
  }

  duties(): Duty[] {
    return this.#database
      .prepare<[], Duty>(
        'SELECT id, sandbox_id AS sandboxId, action, reason, scope, name, period FROM budget_duties ORDER BY id',
      )
      .all();
  }

  /** How often it was tried, this time included. One whose sandbox is gone is not tried again. */
  countTry(id: number): number {
    const row = this.#database
      .prepare<[number], { tries: number }>(
        'UPDATE budget_duties SET tries = tries + 1 WHERE id = ? RETURNING tries',
      )
      .get(id);
    return row?.tries ?? Number.POSITIVE_INFINITY;
  }

  removeDuty(id: number): void {
    this.#database.prepare('DELETE FROM budget_duties WHERE id = ?').run(id);
  }
}
