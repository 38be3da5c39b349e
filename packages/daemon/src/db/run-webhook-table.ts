import type { SqliteDatabase } from './open-database.ts';

export interface RunWebhookRecord {
  readonly id: string;
  readonly url: string;
  readonly secret: string;
  readonly types: string | null;
  /** Null: every run. */
  readonly runId: string | null;
  readonly state: 'active' | 'stopped';
  readonly failure: string | null;
  readonly createdAtMs: number;
}

/** How far one run has come with one webhook. */
export interface WebhookCursor {
  readonly webhookId: string;
  readonly runId: string;
  readonly afterSeq: number;
  /** Tries in a row that failed. */
  readonly attempts: number;
  readonly nextMs: number;
}

const columns = 'id, url, secret, types, run_id AS runId, state, failure, created_at_ms AS createdAtMs';
/** A run that a webhook of all runs has not met yet begins at its first event. */
const cursorColumns = `webhooks.id AS webhookId, runs.id AS runId, coalesce(after_seq, 0) AS afterSeq,
  coalesce(attempts, 0) AS attempts, coalesce(next_ms, 0) AS nextMs`;
const pairs = `run_webhooks AS webhooks
  JOIN runs ON webhooks.run_id IS NULL OR webhooks.run_id = runs.id
  LEFT JOIN run_webhook_cursors AS cursors ON cursors.webhook_id = webhooks.id AND cursors.run_id = runs.id`;

/** Webhooks for events of runs, and how far each has come. */
export class RunWebhookTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  all(): RunWebhookRecord[] {
    return this.#database
      .prepare<[], RunWebhookRecord>(`SELECT ${columns} FROM run_webhooks ORDER BY id`)
      .all();
  }

  byId(id: string): RunWebhookRecord | undefined {
    return this.#database
      .prepare<[string], RunWebhookRecord>(`SELECT ${columns} FROM run_webhooks WHERE id = ?`)
      .get(id);
  }

  insert(record: RunWebhookRecord): void {
    this.#database
      .prepare(
        `INSERT INTO run_webhooks (id, url, secret, types, run_id, state, failure, created_at_ms)
         VALUES (@id, @url, @secret, @types, @runId, @state, @failure, @createdAtMs)`,
      )
      .run(record);
  }

  /** The last try was taken, or somebody wants it to go on. */
  settle(id: string): void {
    this.#database.prepare("UPDATE run_webhooks SET state = 'active', failure = NULL WHERE id = ?").run(id);
  }

  fail(id: string, failure: string, isOver: boolean): void {
    this.#database
      .prepare("UPDATE run_webhooks SET failure = ?, state = iif(?, 'stopped', state) WHERE id = ?")
      .run(failure, isOver ? 1 : 0, id);
  }

  delete(id: string): void {
    this.#database.prepare('DELETE FROM run_webhooks WHERE id = ?').run(id);
  }

  putCursor(cursor: WebhookCursor): void {
    this.#database
      .prepare(
        `INSERT OR REPLACE INTO run_webhook_cursors (webhook_id, run_id, after_seq, attempts, next_ms)
         VALUES (@webhookId, @runId, @afterSeq, @attempts, @nextMs)`,
      )
      .run(cursor);
  }

  /** Of every run that it is about. */
  cursors(webhookId: string): (WebhookCursor & { readonly lastSeq: number })[] {
    return this.#database
      .prepare<[string], WebhookCursor & { lastSeq: number }>(
        `SELECT ${cursorColumns}, runs.last_seq AS lastSeq FROM ${pairs} WHERE webhooks.id = ?`,
      )
      .all(webhookId);
  }

  /** Where it is; undefined where the webhook or the run is gone. */
  place(webhookId: string, runId: string): number | undefined {
    return this.#database
      .prepare<[string, string], WebhookCursor>(
        `SELECT ${cursorColumns} FROM ${pairs} WHERE webhooks.id = ? AND runs.id = ?`,
      )
      .get(webhookId, runId)?.afterSeq;
  }

  /** Those that have something to send by now. */
  due(nowMs: number): WebhookCursor[] {
    return this.#database
      .prepare<[number], WebhookCursor>(
        `SELECT ${cursorColumns} FROM ${pairs}
         WHERE webhooks.state = 'active' AND runs.last_seq > coalesce(after_seq, 0) AND coalesce(next_ms, 0) <= ?
         ORDER BY coalesce(next_ms, 0)`,
      )
      .all(nowMs);
  }

  /** Starts again at once, wherever it waits. */
  hurry(webhookId: string): void {
    this.#database
      .prepare('UPDATE run_webhook_cursors SET attempts = 0, next_ms = 0 WHERE webhook_id = ?')
      .run(webhookId);
  }
}
