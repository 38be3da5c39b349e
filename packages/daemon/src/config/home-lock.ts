import { CoppiceError } from '@coppice/protocol';
import Database from 'better-sqlite3';

/**
 * One daemon per home. The lock is SQLite's own on a database of its own: the kernel lets it go when the process dies,
 * however it dies, and there is no stale file to judge.
 */
export class HomeLock {
  readonly #database: Database.Database;

  private constructor(database: Database.Database) {
    this.#database = database;
  }

  static take(lockFile: string, homeDirectory: string): HomeLock {
    const database = new Database(lockFile, { timeout: 0 });
    try {
      database.pragma('locking_mode = EXCLUSIVE');
      database.exec('BEGIN EXCLUSIVE');
      return new HomeLock(database);
    } catch (cause) {
      database.close();
      if (!(cause instanceof Database.SqliteError) || !cause.code.startsWith('SQLITE_BUSY')) throw cause;
      throw new CoppiceError('wrong_state', `a daemon already runs for ${homeDirectory}`, {
        hint: 'Use it, stop it with `coppice down`, or choose another COPPICE_HOME.',
        cause,
      });
    }
  }

  release(): void {
    this.#database.close();
  }
}
