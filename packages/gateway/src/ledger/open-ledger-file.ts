import { chmodSync, closeSync, openSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';
import Database from 'better-sqlite3';
import { migrations } from './schema.ts';

export type LedgerDatabase = Database.Database;

/**
 * Opens the file that holds ledger and budgets. A commit survives the death of the process at any instant (write-ahead
 * log, synchronous NORMAL); a loss of power may take the last moments.
 */
export function openLedgerFile(file: string): LedgerDatabase {
  closeSync(openSync(file, 'a', 0o600));
  chmodSync(file, 0o600);
  const damaged = (why: string): CoppiceError =>
    new CoppiceError('corrupt', `the ledger ${file} is damaged: ${why}`, {
      hint: 'Move the file away to start an empty ledger, and keep it: its other rows may still be read.',
    });
  try {
    const database = new Database(file);
    try {
      database.pragma('journal_mode = WAL');
      database.pragma('synchronous = NORMAL');
      database.pragma('foreign_keys = ON');
      database.pragma('recursive_triggers = ON'); // so that REPLACE fires the triggers that refuse it
      const verdict = database.pragma('quick_check(1)', { simple: true });
      if (verdict !== 'ok') throw damaged(String(verdict));
      migrate(database, file);
      return database;
    } catch (error) {
      database.close();
      throw error;
    }
  } catch (error) {
    if (error instanceof Database.SqliteError && /^SQLITE_(CORRUPT|NOTADB)/.test(error.code))
      throw damaged(error.message);
    throw error;
  }
}

function migrate(database: LedgerDatabase, file: string): void {
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
}
