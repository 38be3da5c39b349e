import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

/**
 * What a call is about to do to a sandbox, written down before its first effect. Those that a dead daemon left
 * are finished or undone by the next one.
 */
export type Intent =
  | { readonly kind: 'create' | 'start' | 'stop' | 'destroy' | 'resume' }
  | { readonly kind: 'snapshot'; readonly snapshotId: string }
  | {
      readonly kind: 'restore';
      readonly snapshotId: string;
      readonly undoSnapshotId: string | null;
      readonly wasRunning: boolean;
    }
  | {
      readonly kind: 'merge';
      readonly undoSnapshotId: string;
      readonly theirsSnapshotId: string;
      readonly baseSnapshotId: string | null;
      readonly prefer: 'ours' | 'theirs' | null;
    }
  | { readonly kind: 'pause'; readonly checkpointed: boolean }
  /** Of no sandbox: it stands under the id of the snapshot that is to be. The image only where the file brings it. */
  | { readonly kind: 'import'; readonly imageDigest: string | null };

/** A sandbox has one intent at most, as calls on it wait for each other. */
export class IntentTable {
  readonly #database: SqliteDatabase;
  readonly #set: Statement<[string, string, string]>;
  readonly #clear: Statement<[string]>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#set = database.prepare(
      `INSERT INTO intents (sandbox_id, kind, data) VALUES (?, ?, ?)
       ON CONFLICT (sandbox_id) DO UPDATE SET kind = excluded.kind, data = excluded.data`,
    );
    this.#clear = database.prepare('DELETE FROM intents WHERE sandbox_id = ?');
  }

  set(sandboxId: string, intent: Intent): void {
    const { kind, ...data } = intent;
    this.#set.run(sandboxId, kind, JSON.stringify(data));
  }

  clear(sandboxId: string): void {
    this.#clear.run(sandboxId);
  }

  all(): { sandboxId: string; intent: Intent }[] {
    return this.#database
      .prepare<[], { sandboxId: string; kind: string; data: string }>(
        'SELECT sandbox_id AS sandboxId, kind, data FROM intents',
      )
      .all()
      .map(({ sandboxId, kind, data }) => ({ sandboxId, intent: { kind, ...JSON.parse(data) } as Intent }));
  }
}
