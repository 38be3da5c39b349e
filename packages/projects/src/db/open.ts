import { chmodSync, closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import Database from 'better-sqlite3';

/** A file of this package's tables. */
export class StoreFile {
  readonly database: Database.Database;

  constructor(file: string, migrations: readonly string[]) {
    this.database = openProjectDatabase(file, migrations);
  }

  transaction<T>(work: () => T): T {
    return this.database.transaction(work).immediate();
  }

  close(): void {
    this.database.close();
  }
}

/** Opens a database of this package and brings its schema up to date. Configurations may be private, so only the owner reads it. */
function openProjectDatabase(file: string, migrations: readonly string[]): Database.Database {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  chmodSync(file, 0o600);
  const database = new Database(file);
  try {
    database.pragma('journal_mode = WAL');
    database.pragma('synchronous = NORMAL');
    database.pragma('foreign_keys = ON');
    database.pragma('secure_delete = ON');
    const version = Number(database.pragma('user_version', { simple: true }));
    if (version > migrations.length)
      throw new CoppiceError('unsupported', `${file} was written by a newer Coppice (schema ${version})`, {
        hint: 'Run the version that wrote it, or one that is newer.',
      });
    for (const [index, sql] of migrations.entries()) {
      if (index < version) continue;
      database.transaction(() => {
        database.exec(sql);
        database.pragma(`user_version = ${index + 1}`);
      })();
    }
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}
