import type { Intervention, InterventionKind } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

type Standing = Intervention['before'];

export interface InterventionRecord {
  readonly id: number;
  readonly runId: string;
  readonly kind: InterventionKind;
  readonly rule: string;
  readonly detail: string;
  readonly authority: string;
  /** What the agent is told; empty where it is told nothing. */
  readonly text: string;
  /** The step that a rewind goes to. */
  readonly target: number | null;
  readonly state: Intervention['state'];
  readonly before: Standing;
  readonly after: Standing | null;
  readonly messageId: string | null;
  readonly error: string | null;
  readonly atMs: number;
  readonly revertedBy: string | null;
}

type Row = Omit<InterventionRecord, 'before' | 'after'> & {
  readonly before: string;
  readonly after: string | null;
};
const selected = `id, run_id AS runId, kind, rule, detail, authority, text, target, state, before, after,
  message_id AS messageId, error, at_ms AS atMs, reverted_by AS revertedBy`;
const toRecord = (row: Row): InterventionRecord => ({
  ...row,
  before: JSON.parse(row.before),
  after: row.after === null ? null : JSON.parse(row.after),
});

export interface QuarantineRecord {
  readonly runId: string;
  readonly reason: string;
  readonly by: string;
  readonly atMs: number;
  /** The policy that it had, as JSON. */
  readonly network: string;
  readonly evidence: string | null;
}

/** What was done to runs, and how far each was looked at. */
export class GuardianTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  insert(
    record: Omit<InterventionRecord, 'id' | 'state' | 'after' | 'messageId' | 'error' | 'revertedBy'>,
  ): number {
    return Number(
      this.#database
        .prepare(
          `INSERT INTO interventions (run_id, kind, rule, detail, authority, text, target, state, before, at_ms)
           VALUES (@runId, @kind, @rule, @detail, @authority, @text, @target, 'begun', @before, @atMs)`,
        )
        .run({ ...record, before: JSON.stringify(record.before) }).lastInsertRowid,
    );
  }

  update(
    id: number,
    change: Partial<Pick<InterventionRecord, 'state' | 'after' | 'messageId' | 'error' | 'revertedBy'>>,
  ): void {
    const record = { ...this.byId(id)!, ...change };
    this.#database
      .prepare(
        `UPDATE interventions SET state = ?, after = ?, message_id = ?, error = ?, reverted_by = ? WHERE id = ?`,
      )
      .run(
        record.state,
        record.after === null ? null : JSON.stringify(record.after),
        record.messageId,
        record.error,
        record.revertedBy,
        id,
      );
  }

  byId(id: number): InterventionRecord | undefined {
    return this.#all('WHERE id = ?', id)[0];
  }

  of(runId: string): InterventionRecord[] {
    return this.#all('WHERE run_id = ? ORDER BY id', runId);
  }

  /** Those that a crash may have cut short. */
  begun(): InterventionRecord[] {
    return this.#all(`WHERE state = 'begun' ORDER BY id`);
  }

  position(runId: string): number {
    const row = this.#database
      .prepare<[string], { seq: number }>('SELECT seq FROM guardian_positions WHERE run_id = ?')
      .get(runId);
    return row?.seq ?? 0;
  }

  setPosition(runId: string, seq: number): void {
    this.#database
      .prepare('INSERT OR REPLACE INTO guardian_positions (run_id, seq) VALUES (?, ?)')
      .run(runId, seq);
  }

  addRestart(runId: string, atMs: number, reason: string): void {
    this.#database
      .prepare('INSERT INTO run_restarts (run_id, at_ms, reason) VALUES (?, ?, ?)')
      .run(runId, atMs, reason);
  }

  restarts(runId: string, sinceMs: number): { atMs: number; reason: string }[] {
    return this.#database
      .prepare<[string, number], { atMs: number; reason: string }>(
        'SELECT at_ms AS atMs, reason FROM run_restarts WHERE run_id = ? AND at_ms >= ? ORDER BY at_ms',
      )
      .all(runId, sinceMs);
  }

  quarantine(runId: string): QuarantineRecord | undefined {
    return this.#database
      .prepare<[string], QuarantineRecord>(
        'SELECT run_id AS runId, reason, by_whom AS "by", at_ms AS atMs, network, evidence FROM quarantines WHERE run_id = ?',
      )
      .get(runId);
  }

  setQuarantine(record: QuarantineRecord): void {
    this.#database
      .prepare(
        `INSERT OR REPLACE INTO quarantines (run_id, reason, by_whom, at_ms, network, evidence)
         VALUES (@runId, @reason, @by, @atMs, @network, @evidence)`,
      )
      .run(record);
  }

  clearQuarantine(runId: string): void {
    this.#database.prepare('DELETE FROM quarantines WHERE run_id = ?').run(runId);
  }

  #all(where: string, ...values: (string | number)[]): InterventionRecord[] {
    return this.#database
      .prepare<(string | number)[], Row>(`SELECT ${selected} FROM interventions ${where}`)
      .all(...values)
      .map(toRecord);
  }
}
