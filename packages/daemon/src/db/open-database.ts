import { chmodSync, closeSync, existsSync, openSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';
import Database from 'better-sqlite3';
import { migrations } from './migrations.ts';

export type SqliteDatabase = Database.Database;

/**
 * Opens the state of a home. With the write-ahead log and synchronous NORMAL a commit survives the death of the process
 * at any instant; what power loss may take are the last moments, as it does of the disks in the pool as well.
 */
export function openDatabase(file: string, backupFile: string): SqliteDatabase {
  try {
    makePrivate(file);
    const database = new Database(file);
    try {
      database.pragma('journal_mode = WAL');
      database.pragma('synchronous = NORMAL');
      database.pragma('foreign_keys = ON');
      const verdict = database.pragma('quick_check(1)', { simple: true });
      if (verdict !== 'ok') throw corrupt(file, backupFile, String(verdict));
      migrate(database, file);
      return database;
    } catch (error) {
      database.close();
      throw error;
    }
  } catch (error) {
    if (error instanceof Database.SqliteError && /^SQLITE_(CORRUPT|NOTADB)/.test(error.code))
      throw corrupt(file, backupFile, error.message);
    throw error;
  }
}

/** It holds values of environment variables. What SQLite writes beside it (log, shared memory) takes its mode. */
function makePrivate(file: string): void {
  closeSync(openSync(file, 'a', 0o600));
  chmodSync(file, 0o600);
}

function migrate(database: SqliteDatabase, file: string): void {
  const version = Number(database.pragma('user_version', { simple: true }));
  if (version > migrations.length) {
    throw new CoppiceError('unsupported', `${file} was written by a newer Coppice (schema ${version})`, {
      hint: 'Run the version that wrote it, or one that is newer.',
    });
  }
  for (const [index, sql] of migrations.entries()) {
    if (index < version) continue;
    database.transaction(() => {
      database.exec(sql);
      database.pragma(`user_version = ${index + 1}`);
    })();
  }
}

function corrupt(file: string, backupFile: string, verdict: string): CoppiceError {
  const wayBack = existsSync(backupFile)
    ? `Go back to the last good copy, ${backupFile}: coppice up --restore-backup`
    : 'There is no backup yet: move the file away, and the daemon starts with an empty one; disks and snapshots are set aside (`coppice strays`).';
  return new CoppiceError('corrupt', `the database ${file} is damaged: ${verdict.split('\n')[0]}`, {
    hint: `Running sandboxes go on untouched. ${wayBack}`,
    details: { file, backup: existsSync(backupFile) ? backupFile : null },
  });
}
