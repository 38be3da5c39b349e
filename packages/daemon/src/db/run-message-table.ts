import type { MessageState, RunMessage } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

export interface RunMessageRecord
  extends Pick<
    RunMessage,
    'id' | 'number' | 'kind' | 'urgency' | 'priority' | 'text' | 'state' | 'via' | 'note'
  > {
  readonly runId: string;
  readonly sender: string;
  readonly key: string | null;
  readonly acceptedAtMs: number;
  readonly sentAtMs: number | null;
  readonly deliveredAtMs: number | null;
  readonly expiresAtMs: number | null;
}

const selected = `id, run_id AS runId, number, kind, urgency, priority, text, sender, key, state, via, note,
  accepted_at_ms AS acceptedAtMs, sent_at_ms AS sentAtMs, delivered_at_ms AS deliveredAtMs, expires_at_ms AS expiresAtMs`;

/** The inboxes of runs. */
export class RunMessageTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  /** Gives it the next number of its run. */
  insert(record: Omit<RunMessageRecord, 'number'>): RunMessageRecord {
    this.#database
      .prepare(
        `INSERT INTO run_messages (id, run_id, number, kind, urgency, priority, text, sender, key, state, via, note,
           accepted_at_ms, sent_at_ms, delivered_at_ms, expires_at_ms)
         VALUES (@id, @runId, (SELECT coalesce(max(number), 0) + 1 FROM run_messages WHERE run_id = @runId), @kind, @urgency,
           @priority, @text, @sender, @key, @state, @via, @note, @acceptedAtMs, @sentAtMs, @deliveredAtMs, @expiresAtMs)`,
      )
      .run(record);
    return this.byId(record.id)!;
  }

  update(
    id: string,
    changes: Partial<Pick<RunMessageRecord, 'state' | 'via' | 'note' | 'sentAtMs' | 'deliveredAtMs'>>,
  ): void {
    const { state, via, note, sentAtMs, deliveredAtMs } = { ...this.byId(id)!, ...changes };
    this.#database
      .prepare(
        'UPDATE run_messages SET state = ?, via = ?, note = ?, sent_at_ms = ?, delivered_at_ms = ? WHERE id = ?',
      )
      .run(state, via, note, sentAtMs, deliveredAtMs, id);
  }

  byId(id: string): RunMessageRecord | undefined {
    return this.#database
      .prepare<[string], RunMessageRecord>(`SELECT ${selected} FROM run_messages WHERE id = ?`)
      .get(id);
  }

  byKey(runId: string, key: string): RunMessageRecord | undefined {
    return this.#database
      .prepare<[string, string], RunMessageRecord>(
        `SELECT ${selected} FROM run_messages WHERE run_id = ? AND key = ?`,
      )
      .get(runId, key);
  }

  of(runId: string): RunMessageRecord[] {
    return this.#database
      .prepare<[string], RunMessageRecord>(
        `SELECT ${selected} FROM run_messages WHERE run_id = ? ORDER BY number`,
      )
      .all(runId);
  }

  /** The highest priority first, then the oldest. */
  inState(runId: string, state: MessageState): RunMessageRecord[] {
    return this.#database
      .prepare<[string, string], RunMessageRecord>(
        `SELECT ${selected} FROM run_messages WHERE run_id = ? AND state = ? ORDER BY priority DESC, number`,
      )
      .all(runId, state);
  }
}
