import type { RaceEntry, RaceRun, RaceState } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

export interface RaceRecord {
  readonly runId: string;
  /** Counts within the run. */
  readonly number: number;
  readonly state: RaceState;
  readonly reason: string;
  readonly spec: RaceRun;
  /** The step that all begin at. */
  readonly step: number;
  readonly entries: readonly RaceEntry[];
  readonly winner: string | null;
  readonly merged: boolean;
  readonly createdAtMs: number;
  readonly endedAtMs: number | null;
}

interface Row {
  readonly runId: string;
  readonly number: number;
  readonly state: RaceState;
  readonly data: string;
}

const toRecord = ({ runId, number, state, data }: Row): RaceRecord => ({
  ...(JSON.parse(data) as RaceRecord),
  runId,
  number,
  state,
});

export class RaceTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  of(runId: string): RaceRecord[] {
    return this.#database
      .prepare<[string], Row>(
        'SELECT run_id AS runId, number, state, data FROM races WHERE run_id = ? ORDER BY number',
      )
      .all(runId)
      .map(toRecord);
  }

  underWay(): RaceRecord[] {
    return this.#database
      .prepare<[], Row>("SELECT run_id AS runId, number, state, data FROM races WHERE state = 'running'")
      .all()
      .map(toRecord);
  }

  put({ runId, number, state, ...data }: RaceRecord): void {
    this.#database
      .prepare(
        `INSERT INTO races (run_id, number, state, data) VALUES (?, ?, ?, ?)
         ON CONFLICT (run_id, number) DO UPDATE SET state = excluded.state, data = excluded.data`,
      )
      .run(runId, number, state, JSON.stringify(data));
  }
}
