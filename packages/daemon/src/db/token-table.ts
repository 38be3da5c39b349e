import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface TokenRecord {
  readonly id: string;
  readonly name: string;
  readonly scope: string;
  /** The secret itself is nowhere. */
  readonly secretSha256: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly lastUsedAtMs: number | null;
}

const selected = `id, name, scope, secret_sha256 AS secretSha256, created_at_ms AS createdAtMs,
  expires_at_ms AS expiresAtMs, last_used_at_ms AS lastUsedAtMs`;

export class TokenTable {
  readonly #database: SqliteDatabase;
  readonly #insert: Statement<[TokenRecord]>;
  readonly #deleteScope: Statement<[string]>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#insert = database.prepare(
      `INSERT INTO tokens (id, name, scope, secret_sha256, created_at_ms, expires_at_ms, last_used_at_ms)
       VALUES (@id, @name, @scope, @secretSha256, @createdAtMs, @expiresAtMs, @lastUsedAtMs)`,
    );
    this.#deleteScope = database.prepare('DELETE FROM tokens WHERE scope = ?');
  }

  insert(record: TokenRecord): void {
    this.#insert.run(record);
  }

  bySecret(secretSha256: string): TokenRecord | undefined {
    return this.#database
      .prepare<[string], TokenRecord>(`SELECT ${selected} FROM tokens WHERE secret_sha256 = ?`)
      .get(secretSha256);
  }

  all(): TokenRecord[] {
    return this.#database.prepare<[], TokenRecord>(`SELECT ${selected} FROM tokens ORDER BY id`).all();
  }

  delete(id: string): void {
    this.#database.prepare('DELETE FROM tokens WHERE id = ?').run(id);
  }

  deleteScope(scope: string): void {
    this.#deleteScope.run(scope);
  }

  setLastUsed(id: string, atMs: number): void {
    this.#database.prepare('UPDATE tokens SET last_used_at_ms = ? WHERE id = ?').run(atMs, id);
  }
}
