import type { NetworkPolicyBody } from '@coppice/protocol';
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

/** What carries over from the sandbox that a snapshot is of to what grows from it. */
export interface SnapshotShape {
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskMb: number;
  readonly pids: number;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly network: NetworkPolicyBody;
  readonly idleTimeoutS: number | null;
  readonly idleAction: 'pause' | 'stop';
  readonly maxLifetimeS: number | null;
}

export interface SnapshotRecord {
  readonly id: string;
  readonly sandboxId: string;
  readonly sandboxName: string;
  /** Of its sandbox, and for good. */
  readonly project: string;
  readonly owner: string | null;
  readonly runId: string | null;
  readonly name: string;
  readonly note: string;
  readonly tags: readonly string[];
  readonly parentId: string | null;
  readonly imageId: string;
  readonly imageName: string;
  readonly driver: 'container' | 'gvisor';
  readonly engine: string;
  /** Null: files only. */
  readonly memoryBytes: number | null;
  /** What of it no other checkpoint shares; null until it was counted. */
  readonly memoryUsedBytes: number | null;
  /** How long its files are in all, when they were written; null where an earlier version took it. */
  readonly memoryLengthBytes: number | null;
  readonly memoryCompatibility: string | null;
  readonly pauseMs: number | null;
  readonly referencedBytes: number | null;
  readonly usedBytes: number | null;
  readonly shape: SnapshotShape;
  /** Taken for a fork, a merge or an undo, and removed when nothing needs it any more; its tag says for which. */
  readonly automatic: boolean;
  readonly createdAtMs: number;
}

const columns = {
  id: 'id',
  sandboxId: 'sandbox_id',
  sandboxName: 'sandbox_name',
  project: 'project',
  owner: 'owner',
  runId: 'run_id',
  name: 'name',
  note: 'note',
  tags: 'tags',
  parentId: 'parent_id',
  imageId: 'image_id',
  imageName: 'image_name',
  driver: 'driver',
  engine: 'engine',
  memoryBytes: 'memory_bytes',
  memoryUsedBytes: 'memory_used_bytes',
  memoryLengthBytes: 'memory_length_bytes',
  memoryCompatibility: 'memory_compatibility',
  pauseMs: 'pause_ms',
  referencedBytes: 'referenced_bytes',
  usedBytes: 'used_bytes',
  shape: 'shape',
  automatic: 'automatic',
  createdAtMs: 'created_at_ms',
} as const satisfies Record<keyof SnapshotRecord, string>;
const fields = Object.keys(columns) as (keyof SnapshotRecord)[];
const selected = fields.map((field) => `${columns[field]} AS ${field}`).join(', ');

type Row = Record<keyof SnapshotRecord, string | number | null>;

const toRecord = (row: Row): SnapshotRecord =>
  ({
    ...row,
    tags: JSON.parse(row.tags as string),
    shape: JSON.parse(row.shape as string),
    automatic: row.automatic === 1,
  }) as SnapshotRecord;

export class SnapshotTable {
  readonly #database: SqliteDatabase;
  readonly #insert: Database.Statement;
  readonly #byId: Database.Statement<[string], Row>;
  readonly #byName: Database.Statement<[string, string], Row>;
  readonly #all: Database.Statement<[], Row>;
  readonly #ofSandbox: Database.Statement<[string], Row>;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    const names = fields.map((field) => columns[field]).join(', ');
    const places = fields.map((field) => `@${field}`).join(', ');
    this.#insert = database.prepare(`INSERT INTO snapshots (${names}) VALUES (${places})`);
    this.#byId = database.prepare(`SELECT ${selected} FROM snapshots WHERE id = ?`);
    this.#byName = database.prepare(`SELECT ${selected} FROM snapshots WHERE sandbox_id = ? AND name = ?`);
    this.#all = database.prepare(`SELECT ${selected} FROM snapshots ORDER BY id`);
    this.#ofSandbox = database.prepare(`SELECT ${selected} FROM snapshots WHERE sandbox_id = ? ORDER BY id`);
  }

  insert(record: SnapshotRecord): void {
    this.#insert.run({
      ...record,
      tags: JSON.stringify(record.tags),
      shape: JSON.stringify(record.shape),
      automatic: Number(record.automatic),
    });
  }

  setSizes(id: string, referencedBytes: number, usedBytes: number): void {
    this.#database
      .prepare('UPDATE snapshots SET referenced_bytes = ?, used_bytes = ? WHERE id = ?')
      .run(referencedBytes, usedBytes, id);
  }

  setMemoryUsed(id: string, memoryUsedBytes: number): void {
    this.#database
      .prepare('UPDATE snapshots SET memory_used_bytes = ? WHERE id = ?')
      .run(memoryUsedBytes, id);
  }

  keep(id: string, name: string, note: string): void {
    this.#database
      .prepare('UPDATE snapshots SET automatic = 0, name = ?, note = ? WHERE id = ?')
      .run(name, note, id);
  }

  renameSandbox(sandboxId: string, name: string): void {
    this.#database.prepare('UPDATE snapshots SET sandbox_name = ? WHERE sandbox_id = ?').run(name, sandboxId);
  }

  /** Its children become children of its parent. */
  delete(record: SnapshotRecord): void {
    this.#database
      .prepare('UPDATE snapshots SET parent_id = ? WHERE parent_id = ?')
      .run(record.parentId, record.id);
    this.#database.prepare('DELETE FROM snapshots WHERE id = ?').run(record.id);
  }

  /** Their ids, oldest first; of one sandbox, or of all. */
  automaticWithTag(tag: string, sandboxId: string | null = null): string[] {
    const ofOne = sandboxId === null ? '' : 'sandbox_id = @sandboxId AND';
    return this.#database
      .prepare<[Record<string, unknown>], { id: string }>(
        `SELECT id FROM snapshots
         WHERE ${ofOne} automatic = 1 AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = @tag) ORDER BY id`,
      )
      .all({ tag, sandboxId })
      .map(({ id }) => id);
  }

  /** How many snapshots and sandboxes went on from just this one. */
  countHeirs(id: string): number {
    return this.#database
      .prepare<[Record<string, unknown>], { heirs: number }>(
        `SELECT (SELECT count(*) FROM snapshots WHERE parent_id = @id) +
           (SELECT count(*) FROM sandboxes WHERE base_snapshot_id = @id) AS heirs`,
      )
      .get({ id })!.heirs;
  }

  /** Of one sandbox, or of all. */
  count(sandboxId?: string): number {
    const where = sandboxId === undefined ? '' : 'WHERE sandbox_id = @sandboxId';
    return this.#database
      .prepare<[Record<string, unknown>], { count: number }>(
        `SELECT count(*) AS count FROM snapshots ${where}`,
      )
      .get({ sandboxId: sandboxId ?? null })!.count;
  }

  /** Those that somebody asked for. */
  countOwned(owner: string): number {
    return this.#database
      .prepare<[string], { count: number }>(
        'SELECT count(*) AS count FROM snapshots WHERE owner = ? AND automatic = 0',
      )
      .get(owner)!.count;
  }

  hasChildren(id: string): boolean {
    return (
      this.#database.prepare('SELECT 1 FROM snapshots WHERE parent_id = ? LIMIT 1').get(id) !== undefined
    );
  }

  byId(id: string): SnapshotRecord | undefined {
    const row = this.#byId.get(id);
    return row && toRecord(row);
  }

  byName(sandboxId: string, name: string): SnapshotRecord | undefined {
    const row = this.#byName.get(sandboxId, name);
    return row && toRecord(row);
  }

  all(): SnapshotRecord[] {
    return this.#all.all().map(toRecord);
  }

  ofSandbox(sandboxId: string): SnapshotRecord[] {
    return this.#ofSandbox.all(sandboxId).map(toRecord);
  }
}
