import {
  type Check,
  CoppiceError,
  type createIssueSchema,
  type createReviewSchema,
  type Issue,
  type IssueComment,
  type Pull,
  type Review,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { Branch, Forge, MergeRequest, NewPull, WebhookEvent, WebhookRequest } from '../forge.ts';
import { readSignedWebhook } from '../webhook.ts';
import type { ForgeRecords, MergeStep, PullRecord } from './records.ts';
import type { BareRepository, Person } from './repository.ts';

export interface BuiltinForgeParts {
  readonly id: string;
  readonly name: string;
  readonly defaultBranch: string;
  /** Where people find it; issues and pull requests are below. */
  readonly url: string;
  readonly repository: BareRepository;
  readonly records: ForgeRecords;
  /** One change of a repository at a time, whoever asks. */
  readonly exclusive: <T>(work: () => Promise<T>) => Promise<T>;
  readonly step?: (step: MergeStep) => void;
}

const committer: Person = { name: 'Coppice forge', email: 'forge@coppice.invalid' };
const closes = /\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\s+#(\d{1,9})\b/gi;

/** A forge on this machine: git for commits, rows for what people say about them. */
export class BuiltinForge implements Forge {
  readonly #parts: BuiltinForgeParts;

  constructor(parts: BuiltinForgeParts) {
    this.#parts = parts;
  }

  async defaultBranch(): Promise<string> {
    return this.#parts.defaultBranch;
  }

  async issue(id: string): Promise<Issue> {
    const { records } = this.#parts;
    const found = records.issue(this.#parts.id, numberOf(id));
    if (found === undefined) throw this.#missing('issue', id);
    return this.#issueView(found);
  }

  issues(): Issue[] {
    return this.#parts.records.issues(this.#parts.id).map((issue) => this.#issueView(issue));
  }

  async createIssue(issue: z.output<typeof createIssueSchema>): Promise<Issue> {
    return this.issue(String(this.#parts.records.insertIssue(this.#parts.id, issue)));
  }

  async comment(issueId: string, body: string): Promise<IssueComment> {
    const issue = await this.issue(issueId);
    const id = this.#parts.records.insertComment(this.#parts.id, Number(issue.id), body);
    return { id: String(id), body, url: `${issue.url}#comment-${id}` };
  }

  async comments(issueId: string): Promise<IssueComment[]> {
    const issue = await this.issue(issueId);
    return this.#parts.records
      .comments(this.#parts.id, Number(issue.id))
      .map(({ id, body }) => ({ id: String(id), body, url: `${issue.url}#comment-${id}` }));
  }

  branch(name: string): Promise<Branch | undefined> {
    return this.#parts.repository.branch(name);
  }

  async createBranch(name: string, sha: string): Promise<Branch> {
    await this.#parts.repository.createBranch(name, sha);
    return { name, sha };
  }

  deleteBranch(name: string): Promise<void> {
    if (name === this.#parts.defaultBranch)
      throw new CoppiceError('in_use', `${name} is the default branch of ${this.#parts.name}`);
    return this.#parts.repository.deleteBranch(name);
  }

  async compare(base: string, head: string): Promise<{ ahead: number; behind: number }> {
    const [from, to] = [await this.#tip(base), await this.#tip(head)];
    return this.#parts.repository.compare(from, to);
  }

  async createPull({ head, base, title, body, draft = false }: NewPull): Promise<Pull> {
    const { records, repository, id } = this.#parts;
    const [headSha, baseSha] = [await this.#tip(head), await this.#tip(base)];
    if (head === base) throw new CoppiceError('invalid_argument', `a pull request from ${head} to itself`);
    const { ahead } = await repository.compare(baseSha, headSha);
    if (ahead === 0)
      throw new CoppiceError('wrong_state', `${head} has no commit that ${base} lacks`, {
        hint: 'Commit something on the branch and push it first.',
      });
    return this.pull(records.insertPull({ repositoryId: id, title, body, head, base, draft, headSha }));
  }

  async findPull(head: string): Promise<Pull | undefined> {
    const found = this.#parts.records.openPull(this.#parts.id, head);
    return found === undefined ? undefined : this.pull(found.number);
  }

  async pulls(state: 'open' | 'all'): Promise<Pull[]> {
    const found = this.#parts.records.pulls(this.#parts.id);
    const wanted = found.filter((pull) => state === 'all' || pull.state === 'open');
    const views: Pull[] = [];
    for (const { number } of wanted) views.push(await this.pull(number));
    return views;
  }

  async pull(number: number): Promise<Pull> {
    const record = await this.#settled(number);
    if (record.state !== 'open') return this.#view(record, null);
    const [head, base] = [
      await this.#parts.repository.branch(record.head),
      await this.#parts.repository.branch(record.base),
    ];
    if (head === undefined || base === undefined) return this.#view(record, false);
    if (head.sha !== record.headSha)
      this.#parts.records.updatePull(this.#parts.id, number, { headSha: head.sha });
    const conflicts = await this.#parts.repository.conflicts(base.sha, head.sha);
    return this.#view({ ...record, headSha: head.sha }, conflicts.length === 0);
  }

  async updatePull(number: number, change: { title?: string; body?: string }): Promise<Pull> {
    const record = this.#record(number);
    if (record.state !== 'open') throw notOpen(record);
    this.#parts.records.updatePull(this.#parts.id, number, change);
    return this.pull(number);
  }

  async closePull(number: number): Promise<Pull> {
    const record = await this.#settled(number);
    if (record.state === 'merged') throw notOpen(record);
    this.#parts.records.updatePull(this.#parts.id, number, { state: 'closed' });
    return this.pull(number);
  }

  mergePull(number: number, request: MergeRequest): Promise<{ sha: string }> {
    return this.#parts.exclusive(async () => {
      const record = await this.#settle(number);
      // Who asks again for what was merged meanwhile, or before a crash, gets the same answer.
      if (record.state === 'merged' && record.headSha === request.expectedHead)
        return { sha: record.mergeSha! };
      if (record.state !== 'open') throw notOpen(record);
      return this.#merge(record, request);
    });
  }

  async checks(sha: string): Promise<Check[]> {
    return this.#parts.records.checks(this.#parts.id, sha);
  }

  async reportCheck(sha: string, check: Check): Promise<void> {
    if (!(await this.#parts.repository.has(sha)))
      throw new CoppiceError('not_found', `there is no commit ${sha} in ${this.#parts.name}`);
    this.#parts.records.putCheck(this.#parts.id, sha, check);
  }

  async reviews(pull: number): Promise<Review[]> {
    this.#record(pull);
    const newest = new Map<string, Review>();
    for (const review of this.#parts.records.reviews(this.#parts.id, pull)) {
      // A comment does not take back what its author decided before.
      if (review.state === 'commented' && newest.has(review.author)) continue;
      newest.set(review.author, review);
    }
    return [...newest.values()];
  }

  async review(
    number: number,
    author: string,
    { state, body }: z.output<typeof createReviewSchema>,
  ): Promise<Review> {
    const { state: pullState, head_sha: sha } = await this.pull(number);
    if (pullState !== 'open') throw notOpen(this.#record(number));
    const review = { author, state, body, sha, pull: number };
    const id = this.#parts.records.insertReview(this.#parts.id, review);
    return { id: String(id), author, state, body, sha };
  }

  readWebhook(request: WebhookRequest, secret: string): WebhookEvent {
    return readSignedWebhook(request, secret, 'x-coppice-signature-256', 'x-coppice-event');
  }

  async #merge(record: PullRecord, request: MergeRequest): Promise<{ sha: string }> {
    const { repository, records, id, step = () => {} } = this.#parts;
    const { number } = record;
    const [headSha, baseSha] = [await this.#tip(record.head), await this.#tip(record.base)];
    if (headSha !== request.expectedHead)
      throw new CoppiceError(
        'conflict',
        `${record.head} is at ${headSha} and not at ${request.expectedHead}`,
        {
          hint: 'Look at what was added, then merge what you have looked at.',
          details: { reason: 'head_moved', head: headSha },
        },
      );
    if (record.draft)
      throw new CoppiceError('wrong_state', `pull request ${number} is a draft`, {
        hint: 'Take it out of draft first.',
      });
    const title = request.title ?? `${record.title} (#${number})`;
    const message = `${title}\n\n${request.message ?? record.body}`.trimEnd();
    const plan = await repository.planMerge(baseSha, headSha, request.method, `${message}\n`, committer);
    records.updatePull(id, number, { plannedSha: plan.sha, headSha });
    step('forge-merge.recorded');
    await repository.moveBranch(record.base, plan.sha, plan.baseSha);
    step('forge-merge.moved');
    this.#settleMerged(record, plan.sha);
    step('forge-merge.committed');
    return { sha: plan.sha };
  }

  /** A merge that a crash cut short has happened if the base has its commit, and else has not begun. */
  async #settle(number: number): Promise<PullRecord> {
    const record = this.#record(number);
    if (record.plannedSha === null || record.state === 'merged') return record;
    const base = await this.#parts.repository.branch(record.base);
    const happened =
      base !== undefined && (await this.#parts.repository.isAncestor(record.plannedSha, base.sha));
    if (happened) this.#settleMerged(record, record.plannedSha);
    else this.#parts.records.updatePull(this.#parts.id, number, { plannedSha: null });
    return this.#record(number);
  }

  async #settled(number: number): Promise<PullRecord> {
    if (this.#record(number).plannedSha === null) return this.#record(number);
    return this.#parts.exclusive(() => this.#settle(number));
  }

  #settleMerged(record: PullRecord, mergeSha: string): void {
    const { records, id } = this.#parts;
    records.updatePull(id, record.number, { state: 'merged', mergeSha, plannedSha: null });
    for (const [, issue] of record.body.matchAll(closes)) records.closeIssue(id, Number(issue));
  }

  #record(number: number): PullRecord {
    const record = this.#parts.records.pull(this.#parts.id, number);
    if (record === undefined) throw this.#missing('pull request', String(number));
    return record;
  }

  async #tip(branch: string): Promise<string> {
    const found = await this.#parts.repository.branch(branch);
    if (found !== undefined) return found.sha;
    throw this.#missing('branch', branch);
  }

  #missing(what: string, name: string): CoppiceError {
    return new CoppiceError('not_found', `there is no ${what} ${name} in ${this.#parts.name}`);
  }

  #issueView(issue: Omit<Issue, 'url'>): Issue {
    return { ...issue, url: `${this.#parts.url}/issues/${issue.id}` };
  }

  #view(record: PullRecord, mergeable: boolean | null): Pull {
    const { number, title, body, state, head, headSha, base, draft, mergeSha } = record;
    return {
      number,
      title,
      body,
      state,
      head,
      head_sha: headSha,
      base,
      draft,
      mergeable,
      merge_sha: mergeSha,
      url: `${this.#parts.url}/pulls/${number}`,
    };
  }
}

const numberOf = (id: string): number => (/^\d{1,9}$/.test(id) ? Number(id) : 0);

const notOpen = ({ number, state }: PullRecord): CoppiceError =>
  new CoppiceError('wrong_state', `pull request ${number} is ${state}`, {
    hint: 'Open another one from its branch.',
  });
