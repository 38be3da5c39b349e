import type { Event } from '@coppice/protocol';
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface EventFilter {
  readonly after: number;
  readonly limit: number;
  readonly sandboxId?: string | undefined;
  readonly type?: string | undefined;
}

interface Row {
  readonly seq: number;
  readonly atMs: number;
  readonly type: string;
  readonly sandboxId: string | null;
  readonly data: string;
}

const toEvent = (row: Row): Event => ({
  seq: row.seq,
  at: new Date(row.atMs).toISOString(),
  type: row.type,
  sandbox_id: row.sandboxId,
  data: JSON.parse(row.data) as Record<string, unknown>,
});

/** Append-only; sequence numbers are never used twice. */
export class EventTable {
  readonly #insert: Database.Statement;
  readonly #list: Database.Statement<[Record<string, unknown>], Row>;
  readonly #last: Database.Statement<[], { seq: number | null }>;

  constructor(database: SqliteDatabase) {
    this.#insert = database.prepare('INSERT INTO events (at_ms, type, sandbox_id, data) VALUES (?, ?, ?, ?)');
    this.#list = database.prepare(
      `SELECT seq, at_ms AS atMs, type, sandbox_id AS sandboxId, data FROM events
       WHERE seq > @after AND (@sandboxId IS NULL OR sandbox_id = @sandboxId) AND (@type IS NULL OR type = @type)
       ORDER BY seq LIMIT @limit`,
    );
    this.#last = database.prepare('SELECT max(seq) AS seq FROM events');
  }

  append(
    atMs: number,
    type: string,
    sandboxId: string | null,
    data: Readonly<Record<string, unknown>>,
  ): Event {
    const text = JSON.stringify(data);
    const { lastInsertRowid } = this.#insert.run(atMs, type, sandboxId, text);
    return toEvent({ seq: Number(lastInsertRowid), atMs, type, sandboxId, data: text });
  }

  list(filter: EventFilter): Event[] {
    const { after, limit, sandboxId = null, type = null } = filter;
    return this.#list.all({ after, limit, sandboxId, type }).map(toEvent);
  }

  lastSeq(): number {
    return this.#last.get()?.seq ?? 0;
  }
}
