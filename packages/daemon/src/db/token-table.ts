import type { Quota, Role } from '@coppice/protocol';
import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface TokenRecord {
  readonly id: string;
  readonly name: string;
  readonly scope: string;
  readonly role: Role;
  /** Whose it is, where somebody said. */
  readonly person: string | null;
  readonly quota: Quota | null;
  /** The secret itself is nowhere. */
  readonly secretSha256: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly lastUsedAtMs: number | null;
}

const selected = `id, name, scope, role, person, quota, secret_sha256 AS secretSha256, created_at_ms AS createdAtMs,
  expires_at_ms AS expiresAtMs, last_used_at_ms AS lastUsedAtMs`;

type Row = Omit<TokenRecord, 'quota'> & { readonly quota: string | null };

const toRecord = (row: Row): TokenRecord => ({
  ...row,
  quota: row.quota === null ? null : (JSON.parse(row.quota) as Quota),
});

export class TokenTable {
  readonly #database: SqliteDatabase;
  readonly #insert: Statement<[Row]>;
  readonly #deleteScope: Statement<[string]>;
  readonly #byId: Statement<[string], TokenRecord>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#insert = database.prepare(
      `INSERT INTO tokens (id, name, scope, role, person, quota, secret_sha256, created_at_ms, expires_at_ms, last_used_at_ms)
       VALUES (@id, @name, @scope, @role, @person, @quota, @secretSha256, @createdAtMs, @expiresAtMs, @lastUsedAtMs)`,
    );
    this.#deleteScope = database.prepare('DELETE FROM tokens WHERE scope = ?');
    this.#byId = database.prepare(`SELECT ${selected} FROM tokens WHERE id = ?`);
  }

  insert(record: TokenRecord): void {
    this.#insert.run({ ...record, quota: record.quota && JSON.stringify(record.quota) });
  }

  byId(id: string): TokenRecord | undefined {
    return this.#byId.get(id);
  }

  all(): TokenRecord[] {
    return this.#database.prepare<[], Row>(`SELECT ${selected} FROM tokens ORDER BY id`).all().map(toRecord);
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
