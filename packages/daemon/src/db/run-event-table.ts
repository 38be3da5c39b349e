import type { RunEvent, RunEventSource, RunEventType } from '@coppice/protocol';
import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

interface Row {
  readonly run_id: string;
  readonly seq: number;
  readonly atMs: number;
  readonly type: string;
  readonly source: string;
  readonly turn: number;
  readonly data: string;
}

export interface NewRunEvent {
  readonly seq: number;
  readonly atMs: number;
  readonly type: RunEventType;
  readonly source: RunEventSource;
  readonly turn: number;
  readonly data: object;
}

const toEvent = ({ atMs, data, ...row }: Row): RunEvent =>
  ({ ...row, at: new Date(atMs).toISOString(), data: JSON.parse(data) }) as unknown as RunEvent;

/** Events of runs. They go with their run and with nothing else. */
export class RunEventTable {
  readonly #insert: Statement;
  readonly #list: Statement<[string, number, number], Row>;
  readonly #addBody: Statement<[string, string, Buffer]>;
  readonly #body: Statement<[string, string], { bytes: Buffer }>;

  constructor(database: SqliteDatabase) {
    this.#insert = database.prepare(
      `INSERT INTO run_events (run_id, seq, at_ms, type, source, turn, data)
       VALUES (@run_id, @seq, @atMs, @type, @source, @turn, @data)`,
    );
    this.#list = database.prepare(
      `SELECT run_id, seq, at_ms AS atMs, type, source, turn, data FROM run_events
       WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?`,
    );
    this.#addBody = database.prepare('INSERT OR IGNORE INTO run_bodies (run_id, id, bytes) VALUES (?, ?, ?)');
    this.#body = database.prepare('SELECT bytes FROM run_bodies WHERE run_id = ? AND id = ?');
  }

  append(runId: string, event: NewRunEvent): void {
    this.#insert.run({ run_id: runId, ...event, data: JSON.stringify(event.data) });
  }

  list(runId: string, after: number, limit: number): RunEvent[] {
    return this.#list.all(runId, after, limit).map(toEvent);
  }

  addBody(runId: string, id: string, bytes: Buffer): void {
    this.#addBody.run(runId, id, bytes);
  }

  body(runId: string, id: string): Buffer | undefined {
    return this.#body.get(runId, id)?.bytes;
  }
}
