import type { SqliteDatabase } from './open-database.ts';

/** A state that began with a restore. */
export interface RestoreRow {
  readonly holder: string;
  /** What was brought back. */
  readonly snapshotId: string;
  /** The snapshot that keeps what was there before; null where it was discarded, or is gone. */
  readonly leftId: string | null;
  readonly atMs: number;
}

/**
 * What was merged into what, and which states began with a restore: `holder` is a sandbox as it is now, or a snapshot; it has taken in the state that the snapshot
 * `mergedId` is. So a history has more than one line, and the next merge starts from where the last one ended.
 */
export class MergeTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  add(holder: string, mergedId: string): void {
    this.#database
      .prepare('INSERT OR IGNORE INTO merges (holder, merged_id) VALUES (?, ?)')
      .run(holder, mergedId);
  }

  all(): { readonly holder: string; readonly mergedId: string }[] {
    return this.#database
      .prepare<[], { holder: string; mergedId: string }>(
        'SELECT holder, merged_id AS mergedId FROM merges ORDER BY holder, merged_id',
      )
      .all();
  }

  of(holder: string): string[] {
    return this.#ids('SELECT merged_id AS id FROM merges WHERE holder = ? ORDER BY merged_id', holder);
  }

  holdersOf(mergedId: string): string[] {
    return this.#ids('SELECT holder AS id FROM merges WHERE merged_id = ? ORDER BY holder', mergedId);
  }

  remove(holder: string, mergedId: string): void {
    this.#database.prepare('DELETE FROM merges WHERE holder = ? AND merged_id = ?').run(holder, mergedId);
  }

  /** Instead of what the sandbox was restored to before. */
  addRestore(row: RestoreRow): void {
    this.#database
      .prepare('INSERT OR REPLACE INTO restores VALUES (@holder, @snapshotId, @leftId, @atMs)')
      .run(row);
  }

  restores(): RestoreRow[] {
    return this.#database
      .prepare<[], RestoreRow>(
        'SELECT holder, snapshot_id AS snapshotId, left_id AS leftId, at_ms AS atMs FROM restores ORDER BY holder',
      )
      .all();
  }

  /** A snapshot was taken of a sandbox: what that had taken in is part of the snapshot from now on. */
  passOn(sandboxId: string, snapshotId: string): void {
    this.#database
      .prepare('UPDATE OR REPLACE restores SET holder = ? WHERE holder = ?')
      .run(snapshotId, sandboxId);
    this.#database.prepare('UPDATE merges SET holder = ? WHERE holder = ?').run(snapshotId, sandboxId);
  }

  /** A snapshot goes away: what came after it has what it had, and nothing has taken it in any more. */
  forgetSnapshot(snapshotId: string): void {
    this.#database
      .prepare(
        `INSERT OR IGNORE INTO merges (holder, merged_id)
         SELECT heir.id, merges.merged_id FROM merges
         JOIN (SELECT id FROM snapshots WHERE parent_id = @id UNION SELECT id FROM sandboxes WHERE base_snapshot_id = @id) AS heir
         WHERE merges.holder = @id`,
      )
      .run({ id: snapshotId });
    this.#database
      .prepare('DELETE FROM merges WHERE holder = @id OR merged_id = @id')
      .run({ id: snapshotId });
    this.#database
      .prepare('DELETE FROM restores WHERE holder = @id OR snapshot_id = @id')
      .run({ id: snapshotId });
    this.#database.prepare('UPDATE restores SET left_id = NULL WHERE left_id = ?').run(snapshotId);
  }

  /** A sandbox goes away, or back to a snapshot. */
  forgetHolder(holder: string): void {
    this.#database.prepare('DELETE FROM merges WHERE holder = ?').run(holder);
    this.#database.prepare('DELETE FROM restores WHERE holder = ?').run(holder);
  }

  #ids(sql: string, id: string): string[] {
    return this.#database
      .prepare<[string], { id: string }>(sql)
      .all(id)
      .map((row) => row.id);
  }
}
