import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface PageSessionRecord {
  /** Neither the key of the page nor its cookie is kept. */
  readonly keySha256: string;
  readonly cookieSha256: string;
  readonly tokenId: string;
  readonly expiresAtMs: number;
}

const selected = `key_sha256 AS keySha256, cookie_sha256 AS cookieSha256, token_id AS tokenId,
  expires_at_ms AS expiresAtMs`;

/** Browsers that are signed in. */
export class PageSessionTable {
  readonly #database: SqliteDatabase;
  /** Asked for with every call of a page. */
  readonly #byKey: Statement<[string], PageSessionRecord>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#byKey = database.prepare(`SELECT ${selected} FROM page_sessions WHERE key_sha256 = ?`);
  }

  insert(record: PageSessionRecord): void {
    this.#database
      .prepare(
        `INSERT INTO page_sessions (key_sha256, cookie_sha256, token_id, expires_at_ms)
         VALUES (@keySha256, @cookieSha256, @tokenId, @expiresAtMs)`,
      )
      .run(record);
  }

  byKey(keySha256: string): PageSessionRecord | undefined {
    return this.#byKey.get(keySha256);
  }

  delete(keySha256: string): void {
    this.#database.prepare('DELETE FROM page_sessions WHERE key_sha256 = ?').run(keySha256);
  }

  keepNewest(tokenId: string, count: number): void {
    this.#database
      .prepare(
        `DELETE FROM page_sessions WHERE rowid IN
           (SELECT rowid FROM page_sessions WHERE token_id = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)`,
      )
      .run(tokenId, count);
  }

  /** Those that have ended, and those whose token is gone. */
  deleteEnded(nowMs: number): void {
    this.#database
      .prepare(
        'DELETE FROM page_sessions WHERE expires_at_ms <= ? OR token_id NOT IN (SELECT id FROM tokens)',
      )
      .run(nowMs);
  }
}
