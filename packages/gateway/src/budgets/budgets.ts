import type { LedgerDatabase } from '../ledger/open-ledger-file.ts';

/** Limits on what calls may take. */
export class Budgets {
  readonly database: LedgerDatabase;

  constructor(database: LedgerDatabase) {
    this.database = database;
  }
}
