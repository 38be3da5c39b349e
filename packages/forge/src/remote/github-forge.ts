import type { Check, Issue, IssueComment, Pull, Review } from '@coppice/protocol';
import { z } from 'zod';
import { branchOf } from '../builtin/repository.ts';
import type {
  Branch,
  CallOptions,
  Forge,
  MergeRequest,
  NewPull,
  WebhookEvent,
  WebhookRequest,
} from '../forge.ts';
import { readSignedWebhook } from '../webhook.ts';
import { type ForgeCalls, inPath, messageOf } from './forge-calls.ts';
import {
  closable,
  kindOf,
  missing,
  newestReviews,
  nothingToReview,
  settleRefusedMerge,
  taken,
} from './readings.ts';

const text = z
  .string()
  .nullable()
  .transform((value) => value ?? '');
const refSchema = z.object({ object: z.object({ sha: z.string() }) });
const pullSchema = z.object({
  number: z.number(),
  title: z.string(),
  body: text,
  state: z.enum(['open', 'closed']),
  draft: z.boolean().default(false),
  head: z.object({ ref: z.string(), sha: z.string() }),
  base: z.object({ ref: z.string() }),
  // Lists leave these out.
  merged: z.boolean().optional(),
  merged_at: z.string().nullable(),
  mergeable: z.boolean().nullable().default(null),
  merge_commit_sha: z.string().nullable(),
  html_url: z.string(),
});
const issueSchema = z.object({
  number: z.number(),
  title: z.string(),
  body: text.optional().default(''),
  state: z.string(),
  labels: z.array(z.union([z.string(), z.object({ name: z.string().optional() })])),
  html_url: z.string(),
});
const statusSchema = z.object({
  statuses: z.array(
    z.object({
      context: z.string(),
      state: z.string(),
      description: text,
      target_url: z.string().nullable(),
    }),
  ),
});
const checkRunsSchema = z.object({
  check_runs: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      conclusion: z.string().nullable(),
      details_url: z.string().nullable(),
      output: z.object({ title: z.string().nullable() }).nullable().optional(),
    }),
  ),
});
const reviewSchema = z.object({
  id: z.number(),
  user: z.object({ login: z.string() }).nullable(),
  state: z.string(),
  body: text,
  commit_id: z.string().nullable(),
});

const verdicts: Readonly<Record<string, Review['state'] | 'dismissed'>> = {
  APPROVED: 'approved',
  CHANGES_REQUESTED: 'changes_requested',
  COMMENTED: 'commented',
  DISMISSED: 'dismissed',
};
const passed = new Set(['success', 'neutral', 'skipped']);

/** A repository of GitHub, or of a server of GitHub Enterprise. */
export class GithubForge implements Forge {
  readonly #calls: ForgeCalls;
  readonly #owner: string;

  /** `remote` is owner/name; the calls go to the place of that repository. */
  constructor(calls: ForgeCalls, remote: string) {
    this.#calls = calls;
    this.#owner = remote.split('/')[0]!;
  }

  async defaultBranch({ signal }: CallOptions = {}): Promise<string> {
    return this.#calls.defaultBranch(signal);
  }

  async issue(id: string, { signal }: CallOptions = {}): Promise<Issue> {
    const found = await this.#calls.find(issueSchema, `/issues/${encodeURIComponent(id)}`, signal);
    if (found === undefined) throw missing(`issue ${id}`);
    const labels = found.labels.map((label) => (typeof label === 'string' ? label : (label.name ?? '')));
    return {
      id: String(found.number),
      title: found.title,
      body: found.body,
      state: found.state === 'open' ? 'open' : 'closed',
      ...kindOf(labels),
      url: found.html_url,
    };
  }

  async comment(issueId: string, body: string, { signal }: CallOptions = {}): Promise<IssueComment> {
    const path = `/issues/${encodeURIComponent(issueId)}/comments`;
    const answer = await this.#calls.send({ method: 'POST', path, body: { body }, signal });
    const made = this.#calls.shaped(
      z.object({ id: z.number(), body: z.string().default(body), html_url: z.string() }),
      answer,
    );
    return { id: String(made.id), body: made.body, url: made.html_url };
  }

  async branch(name: string, { signal }: CallOptions = {}): Promise<Branch | undefined> {
    const found = await this.#calls.find(refSchema, `/git/ref/heads/${inPath(branchOf(name))}`, signal);
    return found && { name, sha: found.object.sha };
  }

  async createBranch(name: string, sha: string, { signal }: CallOptions = {}): Promise<Branch> {
    const body = { ref: `refs/heads/${branchOf(name)}`, sha };
    const request = { method: 'POST', path: '/git/refs', body, signal } as const;
    const answer = await this.#calls.send(request, [422]);
    if (answer.status !== 422) return { name, sha };
    if (/already exists/i.test(messageOf(answer))) throw taken(`a branch ${name}`);
    if (/does not exist/i.test(messageOf(answer))) throw missing(`commit ${sha} to start ${name} from`);
    throw this.#calls.refusal(request, answer);
  }

  async deleteBranch(name: string, { signal }: CallOptions = {}): Promise<void> {
    const request = { method: 'DELETE', path: `/git/refs/heads/${inPath(branchOf(name))}`, signal } as const;
    const answer = await this.#calls.send(request, [422, 404]);
    if (answer.status === 404 || (answer.status === 422 && /does not exist/i.test(messageOf(answer))))
      throw missing(`branch ${name}`);
    if (answer.status === 422) throw this.#calls.refusal(request, answer);
  }

  compare(
    base: string,
    head: string,
    { signal }: CallOptions = {},
  ): Promise<{ ahead: number; behind: number }> {
    const schema = z
      .object({ ahead_by: z.number(), behind_by: z.number() })
      .transform(({ ahead_by, behind_by }) => ({ ahead: ahead_by, behind: behind_by }));
    const range = `${encodeURIComponent(branchOf(base))}...${encodeURIComponent(branchOf(head))}`;
    return this.#calls.get(schema, `/compare/${range}`, { per_page: '1' }, signal);
  }

  async createPull({ draft = false, ...pull }: NewPull, { signal }: CallOptions = {}): Promise<Pull> {
    const request = { method: 'POST', path: '/pulls', body: { ...pull, draft }, signal } as const;
    const answer = await this.#calls.send(request, [422]);
    if (answer.status !== 422) return this.#view(this.#calls.shaped(pullSchema, answer));
    const said = messageOf(answer);
    if (/already exists/i.test(said)) throw taken(`an open pull request from ${pull.head} to ${pull.base}`);
    if (/no commits between/i.test(said)) throw nothingToReview(pull.head, pull.base);
    throw this.#calls.refusal(request, answer);
  }

  async findPull(head: string, { signal }: CallOptions = {}): Promise<Pull | undefined> {
    const query = { state: 'open', head: `${this.#owner}:${branchOf(head)}`, per_page: '1' };
    const [found] = await this.#calls.get(z.array(pullSchema), '/pulls', query, signal);
    return found && this.#view(found);
  }

  async pull(number: number, { signal }: CallOptions = {}): Promise<Pull> {
    const found = await this.#calls.find(pullSchema, `/pulls/${number}`, signal);
    if (found === undefined) throw missing(`pull request ${number}`);
    return this.#view(found);
  }

  async updatePull(
    number: number,
    change: { readonly title?: string; readonly body?: string },
    { signal }: CallOptions = {},
  ): Promise<Pull> {
    return this.#change(number, change, signal);
  }

  async closePull(number: number, options: CallOptions = {}): Promise<Pull> {
    closable(await this.pull(number, options));
    return this.#change(number, { state: 'closed' }, options.signal);
  }

  async mergePull(
    number: number,
    request: MergeRequest,
    options: CallOptions = {},
  ): Promise<{ sha: string }> {
    const { expectedHead: sha, method: merge_method, title, message } = request;
    const call = {
      method: 'PUT',
      path: `/pulls/${number}/merge`,
      body: {
        sha,
        merge_method,
        ...(title === undefined ? {} : { commit_title: title }),
        ...(message === undefined ? {} : { commit_message: message }),
      },
      signal: options.signal,
    } as const;
    const answer = await this.#calls.send(call, [405, 409, 422]);
    if (answer.status === 200) return this.#calls.shaped(z.object({ sha: z.string() }), answer);
    return settleRefusedMerge(await this.pull(number, options), request, this.#calls.refusal(call, answer));
  }

  /** Both what apps report in detail and what anybody reports in short. */
  async checks(sha: string, { signal }: CallOptions = {}): Promise<Check[]> {
    const at = `/commits/${encodeURIComponent(sha)}`;
    const { check_runs } = await this.#calls.get(
      checkRunsSchema,
      `${at}/check-runs`,
      { filter: 'latest', per_page: '100' },
      signal,
    );
    const { statuses } = await this.#calls.get(statusSchema, `${at}/status`, { per_page: '100' }, signal);
    return [
      ...statuses.map(({ context, state, description, target_url }) => ({
        name: context,
        state:
          state === 'success'
            ? ('success' as const)
            : state === 'pending'
              ? ('pending' as const)
              : ('failure' as const),
        description,
        url: target_url,
      })),
      ...check_runs.map(({ name, status, conclusion, details_url, output }) => ({
        name,
        state:
          status !== 'completed'
            ? ('pending' as const)
            : passed.has(conclusion ?? '')
              ? ('success' as const)
              : ('failure' as const),
        description: output?.title ?? '',
        url: details_url,
      })),
    ];
  }

  async reportCheck(
    sha: string,
    { name, state, description, url }: Check,
    { signal }: CallOptions = {},
  ): Promise<void> {
    const body = { state, context: name, description, ...(url === null ? {} : { target_url: url }) };
    await this.#calls.send({ method: 'POST', path: `/statuses/${encodeURIComponent(sha)}`, body, signal });
  }

  async reviews(pull: number, { signal }: CallOptions = {}): Promise<Review[]> {
    const all = await this.#calls.list(z.array(reviewSchema), `/pulls/${pull}/reviews`, { signal });
    return newestReviews(
      all.flatMap(({ id, user, state, body, commit_id }) => {
        const verdict = verdicts[state];
        if (verdict === undefined) return [];
        const review = { id: String(id), author: user?.login ?? 'ghost', body, sha: commit_id ?? '' };
        return [
          verdict === 'dismissed'
            ? { ...review, state: 'commented' as const, isDismissed: true }
            : { ...review, state: verdict },
        ];
      }),
    );
  }

  readWebhook(request: WebhookRequest, secret: string): WebhookEvent {
    return readSignedWebhook(request, secret, 'x-hub-signature-256', 'x-github-event');
  }

  async #change(number: number, body: object, signal: AbortSignal | undefined): Promise<Pull> {
    const answer = await this.#calls.send({ method: 'PATCH', path: `/pulls/${number}`, body, signal });
    return this.#view(this.#calls.shaped(pullSchema, answer));
  }

  #view(pull: z.output<typeof pullSchema>): Pull {
    const isMerged = pull.merged ?? pull.merged_at !== null;
    return {
      number: pull.number,
      title: pull.title,
      body: pull.body,
      state: isMerged ? 'merged' : pull.state,
      head: pull.head.ref,
      head_sha: pull.head.sha,
      base: pull.base.ref,
      draft: pull.draft,
      mergeable: pull.state === 'open' ? pull.mergeable : null,
      merge_sha: isMerged ? pull.merge_commit_sha : null,
      url: pull.html_url,
    };
  }
}
