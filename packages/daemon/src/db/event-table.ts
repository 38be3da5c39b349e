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

/** How many go at once: the one connection is held meanwhile. */
const pruneBatch = 2000;

/** Sequence numbers are never used twice; the oldest events go when there are too many. */
export class EventTable {
  readonly #insert: Database.Statement;
  readonly #list: Database.Statement<[Record<string, unknown>], Row>;
  readonly #last: Database.Statement<[], { seq: number | null }>;
  readonly #oldest: Database.Statement<[number], Row>;
  readonly #newest: Database.Statement<[], { atMs: number }>;
  readonly #deleteUpTo: Database.Statement<[number]>;

  constructor(database: SqliteDatabase) {
    this.#insert = database.prepare('INSERT INTO events (at_ms, type, sandbox_id, data) VALUES (?, ?, ?, ?)');
    this.#list = database.prepare(
      `SELECT seq, at_ms AS atMs, type, sandbox_id AS sandboxId, data FROM events
       WHERE seq > @after AND (@sandboxId IS NULL OR sandbox_id = @sandboxId) AND (@type IS NULL OR type = @type)
       ORDER BY seq LIMIT @limit`,
    );
    this.#last = database.prepare('SELECT max(seq) AS seq FROM events');
    this.#oldest = database.prepare(
      `SELECT seq, at_ms AS atMs, type, sandbox_id AS sandboxId, data FROM events
       WHERE at_ms >= ? ORDER BY seq LIMIT 1`,
    );
    this.#newest = database.prepare('SELECT at_ms AS atMs FROM events ORDER BY seq DESC LIMIT 1');
    this.#deleteUpTo = database.prepare('DELETE FROM events WHERE seq <= ?');
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

  oldest(): Event | undefined {
    const row = this.#oldest.get(Number.MIN_SAFE_INTEGER);
    return row && toEvent(row);
  }

  /** Of those beyond the newest `kept`, or from before `sinceMs`, some of the oldest. Says whether there are more. */
  prune(kept: number, sinceMs: number): boolean {
    const last = this.lastSeq();
    const first = this.oldest()?.seq ?? last;
    const young = this.#oldest.get(sinceMs)?.seq ?? last;
    // The newest stays: it is what later ones are counted on from.
    const end = Math.min(Math.max(last - kept, young - 1), last - 1);
    if (end < first) return false;
    this.#deleteUpTo.run(Math.min(end, first + pruneBatch - 1));
    return end >= first + pruneBatch;
  }

  /** When the last of them happened; 0 where there is none. */
  newestMs(): number {
    return this.#newest.get()?.atMs ?? 0;
  }

  lastSeq(): number {
    return this.#last.get()?.seq ?? 0;
  }
}
