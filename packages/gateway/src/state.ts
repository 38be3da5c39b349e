import { closeSync, openSync } from 'node:fs';
import Database from 'better-sqlite3';

export interface ConnectionRow {
  readonly id: number;
  readonly sandbox: string;
  readonly name: string;
  readonly port: number;
  readonly verdict: 'allowed' | 'refused' | 'asked';
  readonly reason: string | null;
  /** Where the name led. */
  readonly remote: string | null;
  readonly bytes_sent: number;
  readonly bytes_received: number;
  readonly began_ms: number;
  readonly ended_ms: number;
}

/** What a sandbox wants to reach. */
export interface Place {
  readonly sandbox: string;
  readonly name: string;
  readonly port: number;
}

/** Of each sandbox this many connections are remembered, and of all together. */
const connectionsKept = 1_000;
const connectionsKeptInAll = 100_000;

const schema = `
CREATE TABLE IF NOT EXISTS policies (sandbox TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS names (
  sandbox TEXT NOT NULL, slot INTEGER NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (sandbox, slot), UNIQUE (sandbox, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS listeners (port INTEGER PRIMARY KEY, listener INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS questions (
  sandbox TEXT NOT NULL, name TEXT NOT NULL, port INTEGER NOT NULL, PRIMARY KEY (sandbox, name, port)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS connections (
  id INTEGER PRIMARY KEY AUTOINCREMENT, sandbox TEXT NOT NULL, name TEXT NOT NULL, port INTEGER NOT NULL,
  verdict TEXT NOT NULL, reason TEXT, remote TEXT, bytes_sent INTEGER NOT NULL, bytes_received INTEGER NOT NULL,
  began_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, sealed BLOB NOT NULL, changed_ms INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sealed_with (id INTEGER PRIMARY KEY CHECK (id = 1), key_id TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS secret_uses (name TEXT PRIMARY KEY REFERENCES secrets (name) ON DELETE CASCADE, body TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS connections_of_sandbox ON connections (sandbox, id);
`;

/** What the gateway must know again after it was killed. */
export class GatewayState {
  readonly #db: Database.Database;

  constructor(file: string) {
    closeSync(openSync(file, 'a', 0o600));
    this.#db = new Database(file);
    this.#db.pragma('journal_mode = WAL');
    this.#db.pragma('synchronous = NORMAL');
    this.#db.pragma('foreign_keys = ON');
    // A secret that was removed or changed is not in the file any more.
    this.#db.pragma('secure_delete = ON');
    this.#db.exec(schema);
  }

  policies(): { sandbox: string; body: string }[] {
    return this.#db.prepare<[], { sandbox: string; body: string }>('SELECT * FROM policies').all();
  }

  setPolicy(sandbox: string, body: string): void {
    this.#db.prepare('INSERT OR REPLACE INTO policies VALUES (?, ?)').run(sandbox, body);
  }

  /** With the names that it was given. What it reached stays on record. */
  removeSandbox(sandbox: string): void {
    this.#db.transaction(() => {
      for (const table of ['policies', 'names'])
        this.#db.prepare(`DELETE FROM ${table} WHERE sandbox = ?`).run(sandbox);
    })();
  }

  names(sandbox: string): { slot: number; name: string }[] {
    return this.#db
      .prepare<[string], { slot: number; name: string }>(
        'SELECT slot, name FROM names WHERE sandbox = ? ORDER BY slot',
      )
      .all(sandbox);
  }

  setName(sandbox: string, slot: number, name: string): void {
    this.#db.prepare('INSERT OR REPLACE INTO names VALUES (?, ?, ?)').run(sandbox, slot, name);
  }

  listeners(): Map<number, number> {
    const rows = this.#db
      .prepare<[], { port: number; listener: number }>('SELECT port, listener FROM listeners')
      .all();
    return new Map(rows.map(({ port, listener }) => [port, listener]));
  }

  setListener(port: number, listener: number): void {
    this.#db.prepare('INSERT OR REPLACE INTO listeners VALUES (?, ?)').run(port, listener);
  }

  /** Questions that were never settled, as the process was killed. They are forgotten by this. */
  takeQuestions(): Place[] {
    return this.#db.prepare<[], Place>('DELETE FROM questions RETURNING sandbox, name, port').all();
  }

  addQuestion({ sandbox, name, port }: Place): void {
    this.#db.prepare('INSERT OR REPLACE INTO questions VALUES (?, ?, ?)').run(sandbox, name, port);
  }

  removeQuestion({ sandbox, name, port }: Place): void {
    this.#db
      .prepare('DELETE FROM questions WHERE sandbox = ? AND name = ? AND port = ?')
      .run(sandbox, name, port);
  }

  addConnection(row: Omit<ConnectionRow, 'id'>): ConnectionRow {
    const id = this.#db.transaction(() => {
      const { lastInsertRowid } = this.#db
        .prepare(
          `INSERT INTO connections (sandbox, name, port, verdict, reason, remote, bytes_sent, bytes_received, began_ms, ended_ms)
           VALUES (@sandbox, @name, @port, @verdict, @reason, @remote, @bytes_sent, @bytes_received, @began_ms, @ended_ms)`,
        )
        .run(row);
      this.#db
        .prepare(
          `DELETE FROM connections WHERE id IN
             (SELECT id FROM connections WHERE sandbox = ? ORDER BY id DESC LIMIT 8 OFFSET ${connectionsKept})`,
        )
        .run(row.sandbox);
      this.#db
        .prepare('DELETE FROM connections WHERE id <= ?')
        .run(Number(lastInsertRowid) - connectionsKeptInAll);
      return Number(lastInsertRowid);
    })();
    return { id, ...row };
  }

  connections(sandbox: string, after: number, limit: number): ConnectionRow[] {
    return this.#db
      .prepare<[string, number, number], ConnectionRow>(
        'SELECT * FROM (SELECT * FROM connections WHERE sandbox = ? AND id > ? ORDER BY id DESC LIMIT ?) ORDER BY id',
      )
      .all(sandbox, after, limit);
  }

  /** `use` is the JSON of where it is put; left out it stays as it was, and null takes it away. */
  setSecret(name: string, sealed: Buffer, changedMs: number, use: string | null | undefined): void {
    this.#db.transaction(() => {
      this.#db
        .prepare(
          `INSERT INTO secrets VALUES (?, ?, ?)
           ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, changed_ms = excluded.changed_ms`,
        )
        .run(name, sealed, changedMs);
      if (use === null) this.#db.prepare('DELETE FROM secret_uses WHERE name = ?').run(name);
      else if (use !== undefined)
        this.#db.prepare('INSERT OR REPLACE INTO secret_uses VALUES (?, ?)').run(name, use);
    })();
  }

  /** The id of the key that all secrets are sealed with; undefined where it was never written down. */
  sealedWith(): string | undefined {
    return this.#db.prepare<[], { key_id: string }>('SELECT key_id FROM sealed_with').get()?.key_id;
  }

  /** Seals every secret anew; nothing changes where one of them throws. */
  seal(keyId: string, sealAnew: (name: string, sealed: Buffer) => Buffer): void {
    const set = this.#db.prepare('UPDATE secrets SET sealed = ? WHERE name = ?');
    this.#db.transaction(() => {
      for (const { name } of this.secretNames()) set.run(sealAnew(name, this.secret(name)!), name);
      this.#db.prepare('INSERT OR REPLACE INTO sealed_with VALUES (1, ?)').run(keyId);
    })();
    // Pages that held what the old key opens are not left in the log.
    this.#db.pragma('wal_checkpoint(TRUNCATE)');
  }

  secretUses(): { name: string; body: string }[] {
    return this.#db.prepare<[], { name: string; body: string }>('SELECT name, body FROM secret_uses').all();
  }

  secret(name: string): Buffer | undefined {
    return this.#db
      .prepare<[string], { sealed: Buffer }>('SELECT sealed FROM secrets WHERE name = ?')
      .get(name)?.sealed;
  }

  secretNames(): { name: string; changed_ms: number }[] {
    return this.#db
      .prepare<[], { name: string; changed_ms: number }>('SELECT name, changed_ms FROM secrets ORDER BY name')
      .all();
  }

  removeSecret(name: string): boolean {
    return this.#db.prepare('DELETE FROM secrets WHERE name = ?').run(name).changes > 0;
  }

  close(): void {
    this.#db.close();
  }
}
