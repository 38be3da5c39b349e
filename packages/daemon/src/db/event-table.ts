import type { Event } from '@coppice/protocol';
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface EventFilter {
  readonly after: number;
  readonly limit: number;
  readonly sandboxId?: string | undefined;
  readonly type?: string | undefined;
  /** Only what concerns sandboxes that this reaches; nothing for who sees all. */
  readonly project?: string | undefined;
  readonly runId?: string | undefined;
}

/** Whose an event is: what its sandbox belonged to when it happened. */
interface Owner {
  readonly project: string | null;
  readonly runId: string | null;
}

const conditions = {
  sandboxId: 'sandbox_id = @sandboxId',
  type: 'type = @type',
  project: 'project = @project',
  runId: 'run_id = @runId',
} as const satisfies Partial<Record<keyof EventFilter, string>>;
const filterNames = Object.keys(conditions) as (keyof typeof conditions)[];

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
  readonly #database: SqliteDatabase;
  readonly #insert: Database.Statement;
  readonly #owners: readonly Database.Statement<[string], Owner>[];
  /** One for each set of filters, so that each can use its index. */
  readonly #lists = new Map<string, Database.Statement<[EventFilter], Row>>();
  readonly #last: Database.Statement<[], { seq: number | null }>;
  readonly #oldest: Database.Statement<[number], Row>;
  readonly #newest: Database.Statement<[], { atMs: number }>;
  readonly #deleteUpTo: Database.Statement<[number]>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#insert = database.prepare(
      'INSERT INTO events (at_ms, type, sandbox_id, data, project, run_id) VALUES (?, ?, ?, ?, ?, ?)',
    );
    // Of a sandbox that is gone, what its snapshots or its last event say.
    this.#owners = [
      'FROM sandboxes WHERE id = ?',
      'FROM snapshots WHERE sandbox_id = ? LIMIT 1',
      'FROM events WHERE sandbox_id = ? ORDER BY seq DESC LIMIT 1',
    ].map((from) => database.prepare(`SELECT project, run_id AS runId ${from}`));
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
    const { project, runId } = this.#ownerOf(sandboxId);
    const { lastInsertRowid } = this.#insert.run(atMs, type, sandboxId, text, project, runId);
    return toEvent({ seq: Number(lastInsertRowid), atMs, type, sandboxId, data: text });
  }

  list(filter: EventFilter): Event[] {
    const wanted = filterNames.filter((name) => filter[name] !== undefined);
    const key = wanted.join();
    const where = ['seq > @after', ...wanted.map((name) => conditions[name])].join(' AND ');
    const statement =
      this.#lists.get(key) ??
      this.#database.prepare<[EventFilter], Row>(
        `SELECT seq, at_ms AS atMs, type, sandbox_id AS sandboxId, data FROM events
         WHERE ${where} ORDER BY seq LIMIT @limit`,
      );
    this.#lists.set(key, statement);
    return statement.all(filter).map(toEvent);
  }

  #ownerOf(sandboxId: string | null): Owner {
    if (sandboxId !== null)
      for (const statement of this.#owners) {
        const owner = statement.get(sandboxId);
        if (owner !== undefined) return owner;
      }
    return { project: null, runId: null };
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
