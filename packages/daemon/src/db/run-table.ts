import type {
  AdapterName,
  RunOutcome,
  RunResult,
  RunState,
  RunTransition,
  StartRun,
} from '@coppice/protocol';
import type { Statement } from 'better-sqlite3';
import type { SqliteDatabase } from './open-database.ts';

export interface RunRecord {
  readonly id: string;
  readonly name: string;
  readonly state: RunState;
  readonly outcome: RunOutcome | null;
  readonly reason: string;
  readonly paused: boolean;
  /** What was asked for. */
  readonly spec: StartRun;
  readonly adapter: AdapterName;
  readonly sandboxId: string | null;
  readonly ownsSandbox: boolean;
  readonly turn: number;
  readonly working: boolean;
  readonly lastStep: number;
  readonly lastSeq: number;
  /** What its events and their texts take in the database. */
  readonly recordBytes: number;
  readonly attempt: number;
  readonly parentRunId: string | null;
  readonly parentStep: number | null;
  /** The job in the sandbox that is the agent's process, and how far its output was taken in. */
  readonly jobId: number | null;
  readonly cursor: number;
  /** What the adapter has to know again when another daemon goes on. */
  readonly adapterState: unknown;
  readonly result: RunResult | null;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
}

const columns = {
  id: 'id',
  name: 'name',
  state: 'state',
  outcome: 'outcome',
  reason: 'reason',
  paused: 'paused',
  spec: 'spec',
  adapter: 'adapter',
  sandboxId: 'sandbox_id',
  ownsSandbox: 'owns_sandbox',
  turn: 'turn',
  working: 'working',
  lastStep: 'last_step',
  lastSeq: 'last_seq',
  recordBytes: 'record_bytes',
  attempt: 'attempt',
  parentRunId: 'parent_run_id',
  parentStep: 'parent_step',
  jobId: 'job_id',
  cursor: 'cursor',
  adapterState: 'adapter_state',
  result: 'result',
  createdAtMs: 'created_at_ms',
  startedAtMs: 'started_at_ms',
  endedAtMs: 'ended_at_ms',
} as const satisfies Record<keyof RunRecord, string>;
const fields = Object.keys(columns) as (keyof RunRecord)[];
const json = new Set<keyof RunRecord>(['spec', 'adapterState', 'result']);
const flags = new Set<keyof RunRecord>(['paused', 'ownsSandbox', 'working']);
const selected = fields.map((field) => `${columns[field]} AS ${field}`).join(', ');

type Row = Record<string, string | number | null>;

const toValue = (field: keyof RunRecord, value: unknown): string | number | null => {
  if (json.has(field)) return field === 'result' && value === null ? null : JSON.stringify(value ?? null);
  return typeof value === 'boolean' ? Number(value) : (value as string | number | null);
};

const toRecord = (row: Row): RunRecord =>
  Object.fromEntries(
    Object.entries(row).map(([field, value]) => {
      if (json.has(field as keyof RunRecord))
        return [field, value === null ? null : JSON.parse(value as string)];
      return [field, flags.has(field as keyof RunRecord) ? value === 1 : value];
    }),
  ) as unknown as RunRecord;

/** Runs, and how each came into the state that it is in. */
export class RunTable {
  readonly #database: SqliteDatabase;
  readonly #insert: Statement;
  readonly #byId: Statement<[string], Row>;
  readonly #updates = new Map<string, Statement>();

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#insert = database.prepare(
      `INSERT INTO runs (${fields.map((field) => columns[field]).join(', ')})
       VALUES (${fields.map((field) => `@${field}`).join(', ')})`,
    );
    this.#byId = database.prepare(`SELECT ${selected} FROM runs WHERE id = ?`);
  }

  insert(record: RunRecord): void {
    this.#insert.run(Object.fromEntries(fields.map((field) => [field, toValue(field, record[field])])));
  }

  update(id: string, changes: Partial<Omit<RunRecord, 'id'>>): void {
    const changed = Object.keys(changes) as (keyof typeof changes)[];
    if (changed.length === 0) return;
    const assignments = changed.map((field) => `${columns[field]} = ?`).join(', ');
    const known = this.#updates.get(assignments);
    const update = known ?? this.#database.prepare(`UPDATE runs SET ${assignments} WHERE id = ?`);
    if (known === undefined) this.#updates.set(assignments, update);
    update.run(...changed.map((field) => toValue(field, changes[field])), id);
  }

  byId(id: string): RunRecord | undefined {
    const row = this.#byId.get(id);
    return row && toRecord(row);
  }

  byName(name: string): RunRecord | undefined {
    const row = this.#database
      .prepare<[string], Row>(`SELECT ${selected} FROM runs WHERE name = ?`)
      .get(name);
    return row && toRecord(row);
  }

  /** The newest first. */
  all(): RunRecord[] {
    return this.#database
      .prepare<[], Row>(`SELECT ${selected} FROM runs ORDER BY id DESC`)
      .all()
      .map(toRecord);
  }

  delete(id: string): void {
    this.#database.prepare('DELETE FROM runs WHERE id = ?').run(id);
  }

  addTransition(
    runId: string,
    transition: { from: RunState | null; to: RunState; reason: string; atMs: number },
  ): void {
    this.#database
      .prepare(
        `INSERT INTO run_transitions (run_id, number, from_state, to_state, reason, at_ms)
         VALUES (@runId, (SELECT coalesce(max(number), 0) + 1 FROM run_transitions WHERE run_id = @runId), @from, @to, @reason, @atMs)`,
      )
      .run({ runId, ...transition });
  }

  transitions(runId: string): RunTransition[] {
    return this.#database
      .prepare<[string], Omit<RunTransition, 'at'> & { atMs: number }>(
        `SELECT number, from_state AS "from", to_state AS "to", reason, at_ms AS atMs
         FROM run_transitions WHERE run_id = ? ORDER BY number`,
      )
      .all(runId)
      .map(({ atMs, ...row }) => ({ ...row, at: new Date(atMs).toISOString() }));
  }

  /** Bytes for the standard input of the agent, by their place in it. */
  addInput(runId: string, start: number, bytes: Buffer): void {
    this.#database
      .prepare('INSERT INTO run_input (run_id, start, bytes) VALUES (?, ?, ?)')
      .run(runId, start, bytes);
  }

  input(runId: string): { start: number; bytes: Buffer }[] {
    return this.#database
      .prepare<[string], { start: number; bytes: Buffer }>(
        'SELECT start, bytes FROM run_input WHERE run_id = ? ORDER BY start',
      )
      .all(runId);
  }

  /** Of what the agent has taken, nothing needs to be kept; with no end, of all. */
  dropInput(runId: string, end = Number.MAX_SAFE_INTEGER): void {
    this.#database
      .prepare('DELETE FROM run_input WHERE run_id = ? AND start + length(bytes) <= ?')
      .run(runId, end);
  }
}
