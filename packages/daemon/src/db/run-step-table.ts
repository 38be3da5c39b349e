import type { RunStep } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

export interface RunStepRecord extends Pick<RunStep, 'number' | 'kind' | 'title' | 'seq' | 'turn'> {
  readonly runId: string;
  readonly atMs: number;
  readonly snapshotId: string | null;
  readonly hasMemory: boolean;
  /** How the run stood: what the adapter knew, and how far input and output were. */
  readonly mark: unknown;
}

type Row = Omit<RunStepRecord, 'hasMemory' | 'mark'> & { readonly hasMemory: number; readonly mark: string };
const selected = `run_id AS runId, number, kind, title, seq, turn, at_ms AS atMs, snapshot_id AS snapshotId,
  has_memory AS hasMemory, mark`;
const toRecord = (row: Row): RunStepRecord => ({
  ...row,
  hasMemory: row.hasMemory === 1,
  mark: JSON.parse(row.mark),
});

export class RunStepTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  insert(record: RunStepRecord): void {
    this.#database
      .prepare(
        `INSERT INTO run_steps (run_id, number, kind, title, seq, turn, at_ms, snapshot_id, has_memory, mark)
         VALUES (@runId, @number, @kind, @title, @seq, @turn, @atMs, @snapshotId, @hasMemory, @mark)`,
      )
      .run({ ...record, hasMemory: Number(record.hasMemory), mark: JSON.stringify(record.mark ?? null) });
  }

  get(runId: string, number: number): RunStepRecord | undefined {
    const row = this.#database
      .prepare<[string, number], Row>(`SELECT ${selected} FROM run_steps WHERE run_id = ? AND number = ?`)
      .get(runId, number);
    return row && toRecord(row);
  }

  of(runId: string): RunStepRecord[] {
    return this.#database
      .prepare<[string], Row>(`SELECT ${selected} FROM run_steps WHERE run_id = ? ORDER BY number`)
      .all(runId)
      .map(toRecord);
  }

  /** Its snapshot was thinned out: nobody goes back there. */
  dropSnapshot(runId: string, number: number): void {
    this.#database
      .prepare(
        "UPDATE run_steps SET snapshot_id = NULL, has_memory = 0, mark = 'null' WHERE run_id = ? AND number = ?",
      )
      .run(runId, number);
  }
}
