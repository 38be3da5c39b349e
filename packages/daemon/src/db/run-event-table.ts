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

/** One page of events holds no more than this, and one event at least: a program inside decides how large they are. */
const pageBytes = 4 * 1024 * 1024;

/** Events of runs. They go with their run and with nothing else. */
export class RunEventTable {
  readonly #insert: Statement;
  readonly #list: Statement<[string, number, number], Row>;
  readonly #last: Statement<[string, string], Row>;
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
    this.#last = database.prepare(
      `SELECT run_id, seq, at_ms AS atMs, type, source, turn, data FROM run_events
       WHERE run_id = ? AND type = ? ORDER BY seq DESC LIMIT 1`,
    );
    this.#addBody = database.prepare('INSERT OR IGNORE INTO run_bodies (run_id, id, bytes) VALUES (?, ?, ?)');
    this.#body = database.prepare('SELECT bytes FROM run_bodies WHERE run_id = ? AND id = ?');
  }

  /** Says how many characters of data it wrote. */
  append(runId: string, event: NewRunEvent): number {
    const data = JSON.stringify(event.data);
    this.#insert.run({ run_id: runId, ...event, data });
    return data.length;
  }

  /** May be fewer than the limit where they are large; none only where there are no more. */
  list(runId: string, after: number, limit: number): RunEvent[] {
    const page: RunEvent[] = [];
    let bytes = 0;
    for (const row of this.#list.iterate(runId, after, limit)) {
      page.push(toEvent(row));
      bytes += row.data.length;
      if (bytes >= pageBytes) break;
    }
    return page;
  }

  last(runId: string, type: RunEventType): RunEvent | undefined {
    const row = this.#last.get(runId, type);
    return row && toEvent(row);
  }

  /** False where it is there already. */
  addBody(runId: string, id: string, bytes: Buffer): boolean {
    return this.#addBody.run(runId, id, bytes).changes > 0;
  }

  body(runId: string, id: string): Buffer | undefined {
    return this.#body.get(runId, id)?.bytes;
  }
}
