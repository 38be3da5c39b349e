import { chmod } from 'node:fs/promises';
import type { Transaction } from 'better-sqlite3';
import { EventTable } from './event-table.ts';
import { ForwardTable } from './forward-table.ts';
import { IntentTable } from './intent-table.ts';
import { MergeTable } from './merge-table.ts';
import type { SqliteDatabase } from './open-database.ts';
import { SandboxTable } from './sandbox-table.ts';
import { SnapshotTable } from './snapshot-table.ts';
import { TokenTable } from './token-table.ts';

/** All that the daemon remembers. */
export class State {
  readonly sandboxes: SandboxTable;
  readonly snapshots: SnapshotTable;
  readonly tokens: TokenTable;
  readonly events: EventTable;
  readonly intents: IntentTable;
  readonly forwards: ForwardTable;
  readonly merges: MergeTable;
  readonly #database: SqliteDatabase;
  readonly #transaction: Transaction<(work: () => unknown) => unknown>;

  readonly #relieve: () => boolean;

  /** `relieve` gives room back on a full disk, and says whether it did. */
  constructor(database: SqliteDatabase, relieve: () => boolean = () => false) {
    this.#database = database;
    this.#relieve = relieve;
    this.#transaction = database.transaction((work: () => unknown) => work());
    this.sandboxes = new SandboxTable(database);
    this.snapshots = new SnapshotTable(database);
    this.tokens = new TokenTable(database);
    this.events = new EventTable(database);
    this.intents = new IntentTable(database);
    this.forwards = new ForwardTable(database);
    this.merges = new MergeTable(database);
  }

  /** All of it or nothing. Synchronous: the one connection is held meanwhile, so nothing slow belongs inside. */
  transaction<T>(work: () => T): T {
    try {
      return this.#transaction.immediate(work) as T;
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'SQLITE_FULL' || !this.#relieve()) throw error;
      return this.#transaction.immediate(work) as T;
    }
  }

  /** A copy that is whole at each instant: written beside the last one, then renamed over it. */
  async backup(file: string, replace: (from: string, to: string) => Promise<void>): Promise<void> {
    const fresh = `${file}.new`;
    await this.#database.backup(fresh);
    await chmod(fresh, 0o600);
    await replace(fresh, file);
  }

  close(): void {
    this.#database.close();
  }
}
