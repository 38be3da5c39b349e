import type { branchStates, StartBranch } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

export interface BranchRecord {
  readonly repositoryId: string;
  readonly branch: string;
  readonly ticket: string;
  readonly title: string;
  readonly base: string;
  readonly baseSha: string;
  readonly state: (typeof branchStates)[number];
  /** What was asked for. */
  readonly spec: StartBranch;
  readonly sandboxId: string | null;
  readonly runId: string | null;
  readonly pull: number | null;
  /** The last commit that was brought from the sandbox. */
  readonly headSha: string | null;
  readonly mergeSha: string | null;
  readonly error: string | null;
  readonly createdAtMs: number;
}

type Row = Omit<BranchRecord, 'spec'> & { readonly spec: string };

const selected = `repository_id AS repositoryId, branch, ticket, title, base, base_sha AS baseSha, state, spec,
  sandbox_id AS sandboxId, run_id AS runId, pull, head_sha AS headSha, merge_sha AS mergeSha, error, created_at_ms AS createdAtMs`;

const toRecord = (row: Row): BranchRecord => ({ ...row, spec: JSON.parse(row.spec) });

export class BranchTable {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  insert(record: BranchRecord): void {
    this.#database
      .prepare(
        `INSERT INTO branch_works (repository_id, branch, ticket, title, base, base_sha, state, spec, sandbox_id, run_id, pull,
           head_sha, merge_sha, error, created_at_ms)
         VALUES (@repositoryId, @branch, @ticket, @title, @base, @baseSha, @state, @spec, @sandboxId, @runId, @pull,
           @headSha, @mergeSha, @error, @createdAtMs)`,
      )
      .run({ ...record, spec: JSON.stringify(record.spec) });
  }

  update({ repositoryId, branch }: BranchRecord, change: Partial<Omit<BranchRecord, 'spec'>>): BranchRecord {
    const record = { ...this.find(repositoryId, branch)!, ...change };
    this.#database
      .prepare(
        `UPDATE branch_works SET state = @state, sandbox_id = @sandboxId, run_id = @runId, pull = @pull, head_sha = @headSha,
           merge_sha = @mergeSha, error = @error WHERE repository_id = @repositoryId AND branch = @branch`,
      )
      .run({
        repositoryId,
        branch,
        state: record.state,
        sandboxId: record.sandboxId,
        runId: record.runId,
        pull: record.pull,
        headSha: record.headSha,
        mergeSha: record.mergeSha,
        error: record.error,
      });
    return record;
  }

  /** By the branch, or the newest of a ticket. */
  find(repositoryId: string, ref: string): BranchRecord | undefined {
    const row = this.#database
      .prepare<[string, string, string, string], Row>(
        `SELECT ${selected} FROM branch_works WHERE repository_id = ? AND (branch = ? OR ticket = ?)
         ORDER BY branch = ? DESC, rowid DESC LIMIT 1`,
      )
      .get(repositoryId, ref, ref, ref);
    return row && toRecord(row);
  }

  all(repositoryId?: string): BranchRecord[] {
    return this.#database
      .prepare<[], Row>(`SELECT ${selected} FROM branch_works ORDER BY rowid`)
      .all()
      .map(toRecord)
      .filter((record) => repositoryId === undefined || record.repositoryId === repositoryId);
  }
}
