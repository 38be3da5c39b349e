import { chmod } from 'node:fs/promises';
import type { Transaction } from 'better-sqlite3';
import { BranchTable } from './branch-table.ts';
import { EventTable } from './event-table.ts';
import { ForgeTable } from './forge-table.ts';
import { ForwardTable } from './forward-table.ts';
import { GatewayTable } from './gateway-table.ts';
import { GuardianTable } from './guardian-table.ts';
import { IntentTable } from './intent-table.ts';
import { MergeTable } from './merge-table.ts';
import type { SqliteDatabase } from './open-database.ts';
import { PageSessionTable } from './page-session-table.ts';
import { RaceTable } from './race-table.ts';
import { RunEventTable } from './run-event-table.ts';
import { RunMessageTable } from './run-message-table.ts';
import { RunStepTable } from './run-step-table.ts';
import { RunTable } from './run-table.ts';
import { RunWebhookTable } from './run-webhook-table.ts';
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
  readonly gateway: GatewayTable;
  readonly runs: RunTable;
  readonly runEvents: RunEventTable;
  readonly runMessages: RunMessageTable;
  readonly runSteps: RunStepTable;
  readonly runWebhooks: RunWebhookTable;
  readonly races: RaceTable;
  readonly forge: ForgeTable;
  readonly pageSessions: PageSessionTable;
  readonly branches: BranchTable;
  readonly guardian: GuardianTable;
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
    this.gateway = new GatewayTable(database);
    this.runs = new RunTable(database);
    this.runEvents = new RunEventTable(database);
    this.runMessages = new RunMessageTable(database);
    this.runSteps = new RunStepTable(database);
    this.runWebhooks = new RunWebhookTable(database);
    this.races = new RaceTable(database);
    this.forge = new ForgeTable(database);
    this.pageSessions = new PageSessionTable(database);
    this.branches = new BranchTable(database);
    this.guardian = new GuardianTable(database);
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
