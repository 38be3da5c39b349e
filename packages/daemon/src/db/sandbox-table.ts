import type { NetworkPolicyBody, SandboxState } from '@coppice/protocol';
import type { HostMount } from '@coppice/runtime';
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface SandboxRecord {
  readonly id: string;
  readonly name: string;
  /** Names are unique within it. */
  readonly project: string;
  /** Who made it, for quotas: a person, or the id of a token without one; null for administrators. */
  readonly owner: string | null;
  /** The run of an agent that it belongs to. */
  readonly runId: string | null;
  readonly state: SandboxState;
  readonly failure: string | null;
  readonly imageId: string;
  readonly imageName: string;
  readonly driver: 'container' | 'gvisor';
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskMb: number;
  readonly pids: number;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly network: NetworkPolicyBody;
  readonly address: string | null;
  readonly hostname: string;
  readonly idleTimeoutS: number | null;
  readonly idleAction: 'pause' | 'stop';
  readonly maxLifetimeS: number | null;
  /** Directories of the host. The identity of one that was never found since is null. */
  readonly mounts: readonly HostMount[];
  /** What it grew from, for good. */
  readonly parentSnapshotId: string | null;
  readonly parentSandboxId: string | null;
  /** The snapshot that its disk last agreed with: taken, restored or grown from. */
  readonly baseSnapshotId: string | null;
  /** While paused: what was kept. */
  readonly pauseKeep: 'memory' | 'disk' | null;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly activeAtMs: number;
  readonly lifetimeWarned: boolean;
}

const columns = {
  id: 'id',
  name: 'name',
  project: 'project',
  owner: 'owner',
  runId: 'run_id',
  state: 'state',
  failure: 'failure',
  imageId: 'image_id',
  imageName: 'image_name',
  driver: 'driver',
  cpus: 'cpus',
  memoryMb: 'memory_mb',
  diskMb: 'disk_mb',
  pids: 'pids',
  env: 'env',
  labels: 'labels',
  network: 'network',
  address: 'address',
  hostname: 'hostname',
  idleTimeoutS: 'idle_timeout_s',
  idleAction: 'idle_action',
  maxLifetimeS: 'max_lifetime_s',
  mounts: 'mounts',
  parentSnapshotId: 'parent_snapshot_id',
  parentSandboxId: 'parent_sandbox_id',
  baseSnapshotId: 'base_snapshot_id',
  pauseKeep: 'pause_keep',
  createdAtMs: 'created_at_ms',
  startedAtMs: 'started_at_ms',
  activeAtMs: 'active_at_ms',
  lifetimeWarned: 'lifetime_warned',
} as const satisfies Record<keyof SandboxRecord, string>;
const fields = Object.keys(columns) as (keyof SandboxRecord)[];
const jsonFields = new Set<keyof SandboxRecord>(['env', 'labels', 'network', 'mounts']);
const selected = fields.map((field) => `${columns[field]} AS ${field}`).join(', ');

type Row = Record<keyof SandboxRecord, string | number | null>;

const toValue = (field: keyof SandboxRecord, value: unknown): string | number | null => {
  if (jsonFields.has(field)) return JSON.stringify(value);
  return typeof value === 'boolean' ? Number(value) : (value as string | number | null);
};

const toRecord = (row: Row): SandboxRecord =>
  ({
    ...row,
    ...Object.fromEntries([...jsonFields].map((field) => [field, JSON.parse(row[field] as string)])),
    lifetimeWarned: row.lifetimeWarned === 1,
  }) as unknown as SandboxRecord;

export class SandboxTable {
  readonly #database: SqliteDatabase;
  readonly #insert: Database.Statement;
  readonly #byId: Database.Statement<[string], Row>;
  readonly #byName: Database.Statement<[string, string], Row>;
  readonly #all: Database.Statement<[], Row>;
  readonly #grownFrom: Database.Statement<[string], Row>;
  readonly #delete: Database.Statement<[string]>;
  /** One for each set of fields that is ever changed together; there are few. */
  readonly #updates = new Map<string, Database.Statement>();
  readonly #sums: Database.Statement<[], { count: number; memoryMb: number }>;
  readonly #sumsOf: Database.Statement<[string], { count: number; memoryMb: number; diskMb: number }>;
  /** As read since they last changed: every call asks for one. Nothing that a transaction may still undo. */
  readonly #known = new Map<string, SandboxRecord>();

  constructor(database: SqliteDatabase) {
    this.#database = database;
    const names = fields.map((field) => columns[field]).join(', ');
    const places = fields.map((field) => `@${field}`).join(', ');
    this.#insert = database.prepare(`INSERT INTO sandboxes (${names}) VALUES (${places})`);
    this.#byId = database.prepare(`SELECT ${selected} FROM sandboxes WHERE id = ?`);
    this.#byName = database.prepare(`SELECT ${selected} FROM sandboxes WHERE project = ? AND name = ?`);
    this.#all = database.prepare(`SELECT ${selected} FROM sandboxes ORDER BY id`);
    this.#grownFrom = database.prepare(
      `SELECT ${selected} FROM sandboxes WHERE parent_snapshot_id = ? ORDER BY id`,
    );
    this.#delete = database.prepare('DELETE FROM sandboxes WHERE id = ?');
    this.#sums = database.prepare(
      `SELECT count(*) AS count,
              coalesce(sum(CASE WHEN state IN ('creating', 'running') OR id IN
                (SELECT subject FROM intents WHERE kind IN ('start', 'resume')
                   OR (kind = 'restore' AND json_extract(data, '$.wasRunning'))) THEN memory_mb ELSE 0 END), 0) AS memoryMb
       FROM sandboxes`,
    );
    this.#sumsOf = database.prepare(
      `SELECT count(*) AS count, coalesce(sum(memory_mb), 0) AS memoryMb, coalesce(sum(disk_mb), 0) AS diskMb
       FROM sandboxes WHERE owner = ?`,
    );
  }

  insert(record: SandboxRecord): void {
    this.#insert.run(Object.fromEntries(fields.map((field) => [field, toValue(field, record[field])])));
  }

  update(id: string, changes: Partial<Omit<SandboxRecord, 'id'>>): void {
    const changed = Object.keys(changes) as (keyof typeof changes)[];
    if (changed.length === 0) return;
    this.#known.delete(id);
    const assignments = changed.map((field) => `${columns[field]} = ?`).join(', ');
    const known = this.#updates.get(assignments);
    const update = known ?? this.#database.prepare(`UPDATE sandboxes SET ${assignments} WHERE id = ?`);
    if (known === undefined) this.#updates.set(assignments, update);
    update.run(...changed.map((field) => toValue(field, changes[field])), id);
  }

  delete(id: string): void {
    this.#known.delete(id);
    this.#delete.run(id);
  }

  byId(id: string): SandboxRecord | undefined {
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    const row = this.#byId.get(id);
    const record = row && toRecord(row);
    if (record !== undefined && !this.#database.inTransaction) this.#known.set(id, record);
    return record;
  }

  byName(project: string, name: string): SandboxRecord | undefined {
    const row = this.#byName.get(project, name);
    return row && toRecord(row);
  }

  all(): SandboxRecord[] {
    return this.#all.all().map(toRecord);
  }

  grownFrom(snapshotId: string): SandboxRecord[] {
    return this.#grownFrom.all(snapshotId).map(toRecord);
  }

  /** How many there are, and the memory promised to those that run or are just being started. */
  sums(): { count: number; memoryMb: number } {
    return this.#sums.get()!;
  }

  /** All that one owner has, whatever its state. */
  sumsOf(owner: string): { count: number; memoryMb: number; diskMb: number } {
    return this.#sumsOf.get(owner)!;
  }

  /** When a snapshot is gone, what had grown from it had grown from the one before. */
  rebase(fromSnapshotId: string, toSnapshotId: string | null): void {
    this.#known.clear();
    this.#database
      .prepare('UPDATE sandboxes SET base_snapshot_id = ? WHERE base_snapshot_id = ?')
      .run(toSnapshotId, fromSnapshotId);
  }
}
