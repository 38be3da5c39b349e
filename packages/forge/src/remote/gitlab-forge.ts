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
import { readTokenWebhook } from '../webhook.ts';
import { type ForgeCalls, messageOf } from './forge-calls.ts';
import {
  closable,
  headMoved,
  inConflict,
  kindOf,
  missing,
  nothingToReview,
  settleRefusedMerge,
  taken,
} from './readings.ts';

const text = z
  .string()
  .nullish()
  .transform((value) => value ?? '');
const mergeRequestSchema = z.object({
  iid: z.number(),
  title: z.string(),
  description: text,
  state: z.enum(['opened', 'closed', 'merged', 'locked']),
  draft: z.boolean(),
  source_branch: z.string(),
  target_branch: z.string(),
  sha: text,
  has_conflicts: z.boolean(),
  detailed_merge_status: z.string(),
  merge_commit_sha: z.string().nullish(),
  squash_commit_sha: z.string().nullish(),
  web_url: z.string(),
});
const issueSchema = z.object({
  iid: z.number(),
  title: z.string(),
  description: text,
  state: z.string(),
  labels: z.array(z.string()),
  web_url: z.string(),
});
const statusSchema = z.object({
  name: z.string(),
  status: z.string(),
  description: text,
  target_url: z.string().nullish(),
});
const userSchema = z.object({ username: z.string() });

const unknownYet = new Set(['unchecked', 'checking', 'preparing', 'approvals_syncing']);
const running = new Set([
  'pending',
  'running',
  'created',
  'waiting_for_resource',
  'preparing',
  'scheduled',
  'manual',
]);
const draftTitle = /^(draft:|\[draft\]|\(draft\))\s*/i;
/** As it is asked for when a check is reported. */
const statusOf = { pending: 'pending', success: 'success', failure: 'failed' } as const;

/** A project of GitLab; its merge requests are pull requests here. */
export class GitlabForge implements Forge {
  readonly #calls: ForgeCalls;

  /** The calls go to the place of the project. */
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
      id: String(found.iid),
      title: found.title,
      body: found.description,
      state: found.state === 'opened' ? 'open' : 'closed',
      ...kindOf(found.labels),
      url: found.web_url,
    };
  }

  async comment(issueId: string, body: string, { signal }: CallOptions = {}): Promise<IssueComment> {
    const at = `/issues/${encodeURIComponent(issueId)}`;
    const answer = await this.#calls.send({ method: 'POST', path: `${at}/notes`, body: { body }, signal });
    const made = this.#calls.shaped(z.object({ id: z.number(), body: z.string() }), answer);
    // A note has no address of its own in the answer.
    const { url } = await this.issue(issueId, { signal });
    return { id: String(made.id), body: made.body, url: `${url}#note_${made.id}` };
  }

  async branch(name: string, { signal }: CallOptions = {}): Promise<Branch | undefined> {
    const schema = z.object({ commit: z.object({ id: z.string() }) });
    const found = await this.#calls.find(schema, branchPath(name), signal);
    return found && { name, sha: found.commit.id };
  }

  async createBranch(name: string, sha: string, { signal }: CallOptions = {}): Promise<Branch> {
    const request = {
      method: 'POST',
      path: '/repository/branches',
      body: { branch: branchOf(name), ref: sha },
      signal,
    } as const;
    const answer = await this.#calls.send(request, [400]);
    if (answer.status !== 400) return { name, sha };
    if (/already exists/i.test(messageOf(answer))) throw taken(`a branch ${name}`);
    if (/invalid reference/i.test(messageOf(answer))) throw missing(`commit ${sha} to start ${name} from`);
    throw this.#calls.refusal(request, answer);
  }

  async deleteBranch(name: string, { signal }: CallOptions = {}): Promise<void> {
    const { status } = await this.#calls.send({ method: 'DELETE', path: branchPath(name), signal }, [404]);
    if (status === 404) throw missing(`branch ${name}`);
  }

  async compare(
    base: string,
    head: string,
    { signal }: CallOptions = {},
  ): Promise<{ ahead: number; behind: number }> {
    const count = async (from: string, to: string): Promise<number> => {
      const query = { from: branchOf(from), to: branchOf(to) };
      const schema = z.object({ commits: z.array(z.unknown()) });
      return (await this.#calls.get(schema, '/repository/compare', query, signal)).commits.length;
    };
    return { ahead: await count(base, head), behind: await count(head, base) };
  }

  async createPull(
    { head, base, title, body, draft = false }: NewPull,
    options: CallOptions = {},
  ): Promise<Pull> {
    if ((await this.compare(base, head, options)).ahead === 0) throw nothingToReview(head, base);
    const answer = await this.#calls.send(
      {
        method: 'POST',
        path: '/merge_requests',
        body: {
          source_branch: head,
          target_branch: base,
          title: draft ? `Draft: ${title}` : title,
          description: body,
        },
        signal: options.signal,
      },
      [409],
    );
    if (answer.status === 409) throw taken(`an open merge request from ${head} to ${base}`);
    return view(this.#calls.shaped(mergeRequestSchema, answer));
  }

  async findPull(head: string, { signal }: CallOptions = {}): Promise<Pull | undefined> {
    const query = { state: 'opened', source_branch: branchOf(head) };
    const [found] = await this.#calls.get(z.array(mergeRequestSchema), '/merge_requests', query, signal);
    return found && view(found);
  }

  async pull(number: number, { signal }: CallOptions = {}): Promise<Pull> {
    const found = await this.#calls.find(mergeRequestSchema, `/merge_requests/${number}`, signal);
    if (found === undefined) throw missing(`merge request ${number}`);
    return view(found);
  }

  async updatePull(
    number: number,
    { title, body }: { readonly title?: string; readonly body?: string },
    options: CallOptions = {},
  ): Promise<Pull> {
    const isDraft = title !== undefined && (await this.pull(number, options)).draft;
    const change = {
      ...(title === undefined ? {} : { title: isDraft ? `Draft: ${title}` : title }),
      ...(body === undefined ? {} : { description: body }),
    };
    return this.#change(number, change, options.signal);
  }

  async closePull(number: number, options: CallOptions = {}): Promise<Pull> {
    closable(await this.pull(number, options));
    return this.#change(number, { state_event: 'close' }, options.signal);
  }

  async mergePull(
    number: number,
    request: MergeRequest,
    options: CallOptions = {},
  ): Promise<{ sha: string }> {
    const { expectedHead: sha, method, title, message } = request;
    const before = await this.pull(number, options);
    if (before.state === 'open') {
      if (before.head_sha !== sha) throw headMoved(before, sha);
      if (before.mergeable === false) throw inConflict(before);
    }
    if (method === 'rebase')
      throw new CoppiceError(
        'unsupported',
        'GitLab rebases by the settings of a project, and not for one merge',
        {
          hint: 'Merge it by squash or merge.',
        },
      );
    const words =
      title === undefined && message === undefined
        ? undefined
        : [title, message].filter(Boolean).join('\n\n');
    const squash = method === 'squash';
    const call = {
      method: 'PUT',
      path: `/merge_requests/${number}/merge`,
      body: {
        sha,
        squash,
        should_remove_source_branch: false,
        ...(words === undefined
          ? {}
          : { [squash ? 'squash_commit_message' : 'merge_commit_message']: words }),
      },
      signal: options.signal,
    } as const;
    const answer = await this.#calls.send(call, [405, 406, 409, 422]);
    if (answer.status >= 300)
      return settleRefusedMerge(await this.pull(number, options), request, this.#calls.refusal(call, answer));
    const { merge_sha } = view(this.#calls.shaped(mergeRequestSchema, answer));
    if (merge_sha === null)
      throw new CoppiceError('corrupt', `merge request ${number} was merged, and the forge names no commit`);
    return { sha: merge_sha };
  }

  async checks(sha: string, { signal }: CallOptions = {}): Promise<Check[]> {
    const path = `/repository/commits/${encodeURIComponent(sha)}/statuses`;
    const all = await this.#calls.list(z.array(statusSchema), path, { signal });
    return all.map(({ name, status, description, target_url }) => ({
      name,
      state:
        status === 'success' || status === 'skipped'
          ? 'success'
          : running.has(status)
            ? 'pending'
            : 'failure',
      description,
      url: target_url ?? null,
    }));
  }

  async reportCheck(
    sha: string,
    { name, state, description, url }: Check,
    { signal }: CallOptions = {},
  ): Promise<void> {
    const body = { state: statusOf[state], name, description, ...(url === null ? {} : { target_url: url }) };
    await this.#calls.send({ method: 'POST', path: `/statuses/${encodeURIComponent(sha)}`, body, signal });
  }

  /** Who approved, and who of the reviewers asked for changes. It tells neither words nor commits. */
  async reviews(pull: number, { signal }: CallOptions = {}): Promise<Review[]> {
    const at = `/merge_requests/${pull}`;
    const { approved_by } = await this.#calls.get(
      z.object({ approved_by: z.array(z.object({ user: userSchema })) }),
      `${at}/approvals`,
      {},
      signal,
    );
    const reviewers = await this.#calls.get(
      z.array(z.object({ user: userSchema, state: z.string() })),
      `${at}/reviewers`,
      {},
      signal,
    );
    const of = (author: string, state: Review['state']): Review => ({
      id: `${pull}/${author}`,
      author,
      state,
      body: '',
      sha: '',
    });
    const approved = approved_by.map(({ user }) => of(user.username, 'approved'));
    const against = reviewers
      .filter(({ state }) => state === 'requested_changes')
      .map(({ user }) => of(user.username, 'changes_requested'));
    return [...approved.filter(({ author }) => !against.some((each) => each.author === author)), ...against];
  }

  readWebhook(request: WebhookRequest, secret: string): WebhookEvent {
    return readTokenWebhook(request, secret, 'x-gitlab-token', 'x-gitlab-event');
  }

  async #change(number: number, body: object, signal: AbortSignal | undefined): Promise<Pull> {
    const answer = await this.#calls.send({ method: 'PUT', path: `/merge_requests/${number}`, body, signal });
    return view(this.#calls.shaped(mergeRequestSchema, answer));
  }
}

const branchPath = (name: string): string => `/repository/branches/${encodeURIComponent(branchOf(name))}`;

function view(found: z.output<typeof mergeRequestSchema>): Pull {
  const isOpen = found.state === 'opened' || found.state === 'locked';
  return {
    number: found.iid,
    title: found.title.replace(draftTitle, ''),
    body: found.description,
    state: isOpen ? 'open' : found.state === 'merged' ? 'merged' : 'closed',
    head: found.source_branch,
    head_sha: found.sha,
    base: found.target_branch,
    draft: found.draft,
    mergeable: !isOpen || unknownYet.has(found.detailed_merge_status) ? null : !found.has_conflicts,
    // A project that fast-forwards has no commit of the merge: the head is what was merged.
    merge_sha:
      found.state === 'merged' ? (found.merge_commit_sha ?? found.squash_commit_sha ?? found.sha) : null,
    url: found.web_url,
  };
}
