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
      /** For single paths; one of an earlier version has none. */
      readonly choose?: Readonly<Record<string, 'ours' | 'theirs'>>;
      /** What it leads to, where that was made beside both sides: ours becomes that. */
      readonly mergedSnapshotId?: string | null;
      /** Of a merge of some paths only. */
      readonly path?: readonly string[] | undefined;
      readonly exclude?: readonly string[] | undefined;
    }
  | { readonly kind: 'pause'; readonly checkpointed: boolean }
  /** Of no sandbox: it stands under the id of the snapshot that is to be. The image only where the file brings it. */
  | { readonly kind: 'import'; readonly imageDigest: string | null };

/** What is about to be done to a run; it goes on with it when it is driven again. */
export interface RewindIntent {
  readonly kind: 'run.rewind';
  readonly to: number;
  readonly message: string | null;
}

export type MergeIntent = Extract<Intent, { kind: 'merge' }>;

/** Snapshots that an intent will still read: nobody may delete them before it is settled. */
export function snapshotsOf(intent: Intent | undefined): string[] {
  if (intent?.kind === 'restore') return [intent.snapshotId];
  if (intent?.kind !== 'merge') return [];
  const { undoSnapshotId, theirsSnapshotId, baseSnapshotId, mergedSnapshotId } = intent;
  const others = [baseSnapshotId, mergedSnapshotId ?? null].filter((id) => id !== null);
  return [undoSnapshotId, theirsSnapshotId, ...others];
}

/**
 * By what they are of, and by kind. A sandbox has one at most, as calls on it wait for each other; what is of another kind of thing may
 * have several.
 */
export class IntentTable {
  readonly #database: SqliteDatabase;
  readonly #set: Statement<[string, string, string]>;
  readonly #clear: Statement<[string]>;
  readonly #of: Statement<[string], { kind: string; data: string }>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#set = database.prepare(
      `INSERT INTO intents (subject, kind, data) VALUES (?, ?, ?)
       ON CONFLICT (subject, kind) DO UPDATE SET data = excluded.data`,
    );
    this.#clear = database.prepare('DELETE FROM intents WHERE subject = ?');
    this.#of = database.prepare('SELECT kind, data FROM intents WHERE subject = ?');
  }

  set(sandboxId: string, intent: Intent): void {
    const { kind, ...data } = intent;
    this.#clear.run(sandboxId);
    this.#set.run(sandboxId, kind, JSON.stringify(data));
  }

  clear(sandboxId: string): void {
    this.#clear.run(sandboxId);
  }

  of(sandboxId: string): Intent | undefined {
    const row = this.#of.get(sandboxId);
    return row === undefined ? undefined : read(row);
  }

  setRewind(runId: string, { kind, ...data }: RewindIntent): void {
    this.#set.run(runId, kind, JSON.stringify(data));
  }

  rewindOf(runId: string): RewindIntent | undefined {
    const row = this.#of.get(runId);
    return row === undefined ? undefined : (read(row) as unknown as RewindIntent);
  }

  /** Of sandboxes and imports. */
  all(): { sandboxId: string; intent: Intent }[] {
    return this.#database
      .prepare<[], { sandboxId: string; kind: string; data: string }>(
        "SELECT subject AS sandboxId, kind, data FROM intents WHERE kind NOT LIKE 'run.%'",
      )
      .all()
      .map(({ sandboxId, ...row }) => ({ sandboxId, intent: read(row) }));
  }
}

const read = ({ kind, data }: { readonly kind: string; readonly data: string }): Intent =>
  ({ kind, ...JSON.parse(data) }) as Intent;
