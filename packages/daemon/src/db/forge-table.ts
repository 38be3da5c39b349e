import type { ForgeRecords, PullRecord, ReviewRecord } from '@coppice/forge';
import { type Check, CoppiceError, type Issue, type Review } from '@coppice/protocol';
import type { SqliteDatabase } from './open-database.ts';

export interface RepositoryRecord {
  readonly id: string;
  readonly name: string;
  readonly kind: 'builtin' | 'github' | 'gitlab' | 'gitea';
  readonly defaultBranch: string;
  readonly url: string | null;
  readonly remote: string | null;
  readonly createdAtMs: number;
}

type IssueRow = Omit<Issue, 'url' | 'critical'> & { readonly critical: number };
type PullRow = Omit<PullRecord, 'draft'> & { readonly draft: number };

const repositoryColumns =
  'id, name, kind, default_branch AS defaultBranch, url, remote, created_at_ms AS createdAtMs';
const pullColumns = `repository_id AS repositoryId, number, title, body, state, head, base, draft, head_sha AS headSha,
  merge_sha AS mergeSha, planned_sha AS plannedSha`;
const issueColumns = 'CAST(number AS TEXT) AS id, title, body, type, critical, state';

const issueOf = (row: IssueRow): Omit<Issue, 'url'> => ({ ...row, critical: row.critical === 1 });
const pullOf = (row: PullRow): PullRecord => ({ ...row, draft: row.draft === 1 });

/** Repositories, and what people and programs say about them. */
export class ForgeTable implements ForgeRecords {
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  repositories(): RepositoryRecord[] {
    return this.#all<RepositoryRecord>(`SELECT ${repositoryColumns} FROM repositories ORDER BY name`);
  }

  repository(ref: string): RepositoryRecord | undefined {
    const [found] = this.#all<RepositoryRecord>(
      `SELECT ${repositoryColumns} FROM repositories WHERE name = ? OR id = ?`,
      ref,
      ref,
    );
    return found;
  }

  insertRepository(record: RepositoryRecord): void {
    this.#database
      .prepare(
        `INSERT INTO repositories (id, name, kind, default_branch, url, remote, created_at_ms, last_number)
         VALUES (@id, @name, @kind, @defaultBranch, @url, @remote, @createdAtMs, 0)`,
      )
      .run(record);
  }

  deleteRepository(id: string): void {
    for (const table of [
      'forge_issues',
      'forge_comments',
      'forge_pulls',
      'forge_checks',
      'forge_reviews',
      'branch_works',
    ])
      this.#run(`DELETE FROM ${table} WHERE repository_id = ?`, id);
    this.#run('DELETE FROM repositories WHERE id = ?', id);
  }

  issue(repositoryId: string, number: number): Omit<Issue, 'url'> | undefined {
    return this.#issues('AND number = ?', repositoryId, number)[0];
  }

  issues(repositoryId: string): Omit<Issue, 'url'>[] {
    return this.#issues('', repositoryId);
  }

  insertIssue(repositoryId: string, issue: Omit<Issue, 'url' | 'id' | 'state'>): number {
    const number = this.#nextNumber(repositoryId);
    this.#run(
      `INSERT INTO forge_issues (repository_id, number, title, body, type, critical, state) VALUES (?, ?, ?, ?, ?, ?, 'open')`,
      ...[repositoryId, number, issue.title, issue.body, issue.type, issue.critical ? 1 : 0],
    );
    return number;
  }

  closeIssue(repositoryId: string, number: number): void {
    this.#run(
      `UPDATE forge_issues SET state = 'closed' WHERE repository_id = ? AND number = ?`,
      ...[repositoryId, number],
    );
  }

  insertComment(repositoryId: string, issue: number, body: string): number {
    return this.#run(
      'INSERT INTO forge_comments (repository_id, issue, body) VALUES (?, ?, ?)',
      ...[repositoryId, issue, body],
    );
  }

  comments(repositoryId: string, issue: number): { id: number; body: string }[] {
    return this.#all(
      'SELECT id, body FROM forge_comments WHERE repository_id = ? AND issue = ? ORDER BY id',
      ...[repositoryId, issue],
    );
  }

  pull(repositoryId: string, number: number): PullRecord | undefined {
    return this.#pulls('AND number = ?', repositoryId, number)[0];
  }

  pulls(repositoryId: string): PullRecord[] {
    return this.#pulls('', repositoryId);
  }

  openPull(repositoryId: string, head: string): PullRecord | undefined {
    return this.#pulls(`AND head = ? AND state = 'open'`, repositoryId, head)[0];
  }

  insertPull(pull: Omit<PullRecord, 'number' | 'state' | 'mergeSha' | 'plannedSha'>): number {
    const insert = this.#database.transaction(() => {
      const open = this.openPull(pull.repositoryId, pull.head);
      if (open?.base === pull.base)
        throw new CoppiceError(
          'name_taken',
          `pull request ${open.number} from ${pull.head} is open already`,
          {
            details: { number: open.number },
          },
        );
      const number = this.#nextNumber(pull.repositoryId);
      this.#database
        .prepare(
          `INSERT INTO forge_pulls (repository_id, number, title, body, state, head, base, draft, head_sha)
           VALUES (@repositoryId, @number, @title, @body, 'open', @head, @base, @draft, @headSha)`,
        )
        .run({ ...pull, number, draft: pull.draft ? 1 : 0 });
      return number;
    });
    return insert();
  }

  updatePull(repositoryId: string, number: number, change: Parameters<ForgeRecords['updatePull']>[2]): void {
    const pull = this.pull(repositoryId, number);
    if (pull === undefined) return;
    this.#database
      .prepare(
        `UPDATE forge_pulls SET title = @title, body = @body, state = @state, head_sha = @headSha, merge_sha = @mergeSha,
           planned_sha = @plannedSha WHERE repository_id = @repositoryId AND number = @number`,
      )
      .run({ ...pull, ...change, draft: undefined });
  }

  checks(repositoryId: string, sha: string): Check[] {
    return this.#all(
      'SELECT name, state, description, url FROM forge_checks WHERE repository_id = ? AND sha = ? ORDER BY name',
      ...[repositoryId, sha],
    );
  }

  putCheck(repositoryId: string, sha: string, { name, state, description, url }: Check): void {
    this.#run(
      `INSERT OR REPLACE INTO forge_checks (repository_id, sha, name, state, description, url) VALUES (?, ?, ?, ?, ?, ?)`,
      ...[repositoryId, sha, name, state, description, url],
    );
  }

  reviews(repositoryId: string, pull: number): Review[] {
    return this.#all(
      `SELECT CAST(id AS TEXT) AS id, author, state, body, sha FROM forge_reviews
       WHERE repository_id = ? AND pull = ? ORDER BY forge_reviews.id`,
      ...[repositoryId, pull],
    );
  }

  insertReview(repositoryId: string, { pull, author, state, body, sha }: Omit<ReviewRecord, 'id'>): number {
    return this.#run(
      'INSERT INTO forge_reviews (repository_id, pull, author, state, body, sha) VALUES (?, ?, ?, ?, ?, ?)',
      ...[repositoryId, pull, author, state, body, sha],
    );
  }

  #issues(where: string, ...values: (string | number)[]): Omit<Issue, 'url'>[] {
    return this.#all<IssueRow>(
      `SELECT ${issueColumns} FROM forge_issues WHERE repository_id = ? ${where} ORDER BY number`,
      ...values,
    ).map(issueOf);
  }

  #pulls(where: string, ...values: (string | number)[]): PullRecord[] {
    return this.#all<PullRow>(
      `SELECT ${pullColumns} FROM forge_pulls WHERE repository_id = ? ${where} ORDER BY number`,
      ...values,
    ).map(pullOf);
  }

  #nextNumber(repositoryId: string): number {
    const [row] = this.#all<{ number: number }>(
      'UPDATE repositories SET last_number = last_number + 1 WHERE id = ? RETURNING last_number AS number',
      repositoryId,
    );
    if (row === undefined) throw new CoppiceError('not_found', `the repository ${repositoryId} is gone`);
    return row.number;
  }

  #all<T>(sql: string, ...values: (string | number | null)[]): T[] {
    return this.#database.prepare<(string | number | null)[], T>(sql).all(...values);
  }

  #run(sql: string, ...values: (string | number | null)[]): number {
    return Number(this.#database.prepare(sql).run(...values).lastInsertRowid);
  }
}
