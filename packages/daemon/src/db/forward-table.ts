import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface ForwardRecord {
  readonly sandboxId: string;
  readonly guestPort: number;
  readonly hostPort: number;
}

const selected = 'sandbox_id AS sandboxId, guest_port AS guestPort, host_port AS hostPort';

export class ForwardTable {
  readonly #database: SqliteDatabase;
  /** Asked for with every look at a sandbox. */
  readonly #ofSandbox: Statement<[string], ForwardRecord>;
  readonly #deleteAll: Statement<[string]>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#ofSandbox = database.prepare(
      `SELECT ${selected} FROM forwards WHERE sandbox_id = ? ORDER BY guest_port`,
    );
    this.#deleteAll = database.prepare('DELETE FROM forwards WHERE sandbox_id = ?');
  }

  insert(record: ForwardRecord): void {
    this.#database
      .prepare(
        'INSERT INTO forwards (sandbox_id, guest_port, host_port) VALUES (@sandboxId, @guestPort, @hostPort)',
      )
      .run(record);
  }

  all(): ForwardRecord[] {
    return this.#database.prepare<[], ForwardRecord>(`SELECT ${selected} FROM forwards`).all();
  }

  ofSandbox(sandboxId: string): ForwardRecord[] {
    return this.#ofSandbox.all(sandboxId);
  }

  delete(sandboxId: string, guestPort: number): void {
    this.#database
      .prepare('DELETE FROM forwards WHERE sandbox_id = ? AND guest_port = ?')
      .run(sandboxId, guestPort);
  }

  deleteAll(sandboxId: string): void {
    this.#deleteAll.run(sandboxId);
  }
}
