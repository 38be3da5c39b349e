import type { Check, Issue, IssueComment, Pull, Review } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol';
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
import { type ForgeCalls, inPath } from './forge-calls.ts';
import {
  closable,
  headMoved,
  kindOf,
  missing,
  newestReviews,
  nothingToReview,
  settleRefusedMerge,
  taken,
} from './readings.ts';

const text = z
  .string()
  .nullish()
  .transform((value) => value ?? '');
const pullSchema = z.object({
  number: z.number(),
  title: z.string(),
  body: text,
  state: z.enum(['open', 'closed']),
  head: z.object({ ref: z.string(), sha: z.string() }),
  base: z.object({ ref: z.string() }),
  merged: z.boolean(),
  mergeable: z.boolean(),
  merge_commit_sha: z.string().nullish(),
  html_url: z.string(),
});
const issueSchema = z.object({
  number: z.number(),
  title: z.string(),
  body: text,
  state: z.string(),
  labels: z.array(z.object({ name: z.string() })).nullish(),
  html_url: z.string(),
});
const statusSchema = z.object({
  statuses: z
    .array(
      z.object({
        context: z.string(),
        status: z.string(),
        description: text,
        target_url: z.string().nullish(),
      }),
    )
    .nullable(),
});
const reviewSchema = z.object({
  id: z.number(),
  user: z.object({ login: z.string() }).nullish(),
  state: z.string(),
  body: text,
  commit_id: text,
  dismissed: z.boolean().default(false),
});

const verdicts: Readonly<Record<string, Review['state']>> = {
  APPROVED: 'approved',
  REQUEST_CHANGES: 'changes_requested',
  COMMENT: 'commented',
};
/** A draft is one by its title here. */
const draftTitle = /^(WIP:|\[WIP\])\s*/i;

/** A repository of Gitea or Forgejo. */
export class GiteaForge implements Forge {
  readonly #calls: ForgeCalls;

  /** The calls go to the place of the repository. */
  constructor(calls: ForgeCalls) {
    this.#calls = calls;
  }

  async defaultBranch({ signal }: CallOptions = {}): Promise<string> {
    return this.#calls.defaultBranch(signal);
  }

  async issue(id: string, { signal }: CallOptions = {}): Promise<Issue> {
    const found = await this.#calls.find(issueSchema, `/issues/${encodeURIComponent(id)}`, signal);
    if (found === undefined) throw missing(`issue ${id}`);
    return {
      id: String(found.number),
      title: found.title,
      body: found.body,
      state: found.state === 'open' ? 'open' : 'closed',
      ...kindOf((found.labels ?? []).map(({ name }) => name)),
      url: found.html_url,
    };
  }

  async comment(issueId: string, body: string, { signal }: CallOptions = {}): Promise<IssueComment> {
    const path = `/issues/${encodeURIComponent(issueId)}/comments`;
    const answer = await this.#calls.send({ method: 'POST', path, body: { body }, signal });
    const made = this.#calls.shaped(
      z.object({ id: z.number(), body: z.string(), html_url: z.string() }),
      answer,
    );
    return { id: String(made.id), body: made.body, url: made.html_url };
  }

  async branch(name: string, { signal }: CallOptions = {}): Promise<Branch | undefined> {
    const schema = z.object({ commit: z.object({ id: z.string() }) });
    const found = await this.#calls.find(schema, `/branches/${inPath(branchOf(name))}`, signal);
    return found && { name, sha: found.commit.id };
  }

  async createBranch(name: string, sha: string, { signal }: CallOptions = {}): Promise<Branch> {
    const body = { new_branch_name: branchOf(name), old_ref_name: sha };
    const answer = await this.#calls.send({ method: 'POST', path: '/branches', body, signal }, [404, 409]);
    if (answer.status === 409) throw taken(`a branch ${name}`);
    if (answer.status === 404) throw missing(`commit ${sha} to start ${name} from`);
    return { name, sha };
  }

  async deleteBranch(name: string, { signal }: CallOptions = {}): Promise<void> {
    const path = `/branches/${inPath(branchOf(name))}`;
    const { status } = await this.#calls.send({ method: 'DELETE', path, signal }, [404]);
    if (status === 404) throw missing(`branch ${name}`);
  }

  async compare(
    base: string,
    head: string,
    { signal }: CallOptions = {},
  ): Promise<{ ahead: number; behind: number }> {
    const count = async (from: string, to: string): Promise<number> => {
      const range = `${inPath(branchOf(from))}...${inPath(branchOf(to))}`;
      return (await this.#calls.get(z.object({ total_commits: z.number() }), `/compare/${range}`, {}, signal))
        .total_commits;
    };
    return { ahead: await count(base, head), behind: await count(head, base) };
  }

  async createPull({ draft = false, title, ...pull }: NewPull, options: CallOptions = {}): Promise<Pull> {
    // It would take one without a commit.
    if ((await this.compare(pull.base, pull.head, options)).ahead === 0)
      throw nothingToReview(pull.head, pull.base);
    const body = { ...pull, title: draft ? `WIP: ${title}` : title };
    const answer = await this.#calls.send(
      { method: 'POST', path: '/pulls', body, signal: options.signal },
      [409],
    );
    if (answer.status === 409) throw taken(`an open pull request from ${pull.head} to ${pull.base}`);
    return view(this.#calls.shaped(pullSchema, answer));
  }

  async findPull(head: string, { signal }: CallOptions = {}): Promise<Pull | undefined> {
    const name = branchOf(head);
    const open = await this.#calls.list(z.array(pullSchema), '/pulls', {
      query: { state: 'open' },
      size: 'limit',
      signal,
    });
    const found = open.find((pull) => pull.head.ref === name);
    return found && view(found);
  }

  async pull(number: number, { signal }: CallOptions = {}): Promise<Pull> {
    const found = await this.#calls.find(pullSchema, `/pulls/${number}`, signal);
    if (found === undefined) throw missing(`pull request ${number}`);
    return view(found);
  }

  async updatePull(
    number: number,
    { title, body }: { readonly title?: string; readonly body?: string },
    options: CallOptions = {},
  ): Promise<Pull> {
    const isDraft = title !== undefined && (await this.pull(number, options)).draft;
    const change = {
      ...(title === undefined ? {} : { title: isDraft ? `WIP: ${title}` : title }),
      ...(body === undefined ? {} : { body }),
    };
    return this.#change(number, change, options.signal);
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
    const { expectedHead, method, title, message } = request;
    const before = await this.pull(number, options);
    if (before.state === 'open' && before.head_sha !== expectedHead) throw headMoved(before, expectedHead);
    const call = {
      method: 'POST',
      path: `/pulls/${number}/merge`,
      body: {
        Do: method,
        head_commit_id: expectedHead,
        ...(title === undefined ? {} : { MergeTitleField: title }),
        ...(message === undefined ? {} : { MergeMessageField: message }),
      },
      signal: options.signal,
    } as const;
    const answer = await this.#calls.send(call, [405, 409, 422]);
    const after = await this.pull(number, options);
    if (answer.status >= 300) return settleRefusedMerge(after, request, this.#calls.refusal(call, answer));
    if (after.merge_sha === null)
      throw new CoppiceError('corrupt', `pull request ${number} was merged, and the forge names no commit`);
    return { sha: after.merge_sha };
  }

  async checks(sha: string, { signal }: CallOptions = {}): Promise<Check[]> {
    const path = `/commits/${encodeURIComponent(sha)}/status`;
    const { statuses } = await this.#calls.get(statusSchema, path, {}, signal);
    return (statuses ?? []).map(({ context, status, description, target_url }) => ({
      name: context,
      state: status === 'success' ? 'success' : status === 'pending' ? 'pending' : 'failure',
      description,
      url: target_url === undefined || target_url === '' ? null : target_url,
    }));
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
    const all = await this.#calls.list(z.array(reviewSchema), `/pulls/${pull}/reviews`, {
      size: 'limit',
      signal,
    });
    return newestReviews(
      all.flatMap(({ id, user, state, body, commit_id, dismissed }) =>
        verdicts[state] === undefined
          ? []
          : [
              {
                id: String(id),
                author: user?.login ?? 'ghost',
                state: verdicts[state],
                body,
                sha: commit_id,
                isDismissed: dismissed,
              },
            ],
      ),
    );
  }

  readWebhook(request: WebhookRequest, secret: string): WebhookEvent {
    return readSignedWebhook(request, secret, 'x-gitea-signature', 'x-gitea-event');
  }

  async #change(number: number, body: object, signal: AbortSignal | undefined): Promise<Pull> {
    const answer = await this.#calls.send({ method: 'PATCH', path: `/pulls/${number}`, body, signal });
    return view(this.#calls.shaped(pullSchema, answer));
  }
}

const view = (pull: z.output<typeof pullSchema>): Pull => ({
  number: pull.number,
  title: pull.title.replace(draftTitle, ''),
  body: pull.body,
  state: pull.merged ? 'merged' : pull.state,
  head: pull.head.ref,
  head_sha: pull.head.sha,
  base: pull.base.ref,
  draft: draftTitle.test(pull.title),
  mergeable: pull.state === 'open' ? pull.mergeable : null,
  merge_sha: pull.merged ? (pull.merge_commit_sha ?? null) : null,
  url: pull.html_url,
});
