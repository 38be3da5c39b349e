import type {
  Check,
  ForgeDoctor,
  Issue,
  IssueComment,
  Pull,
  Repository,
  Review,
  RouteBody,
  RouteResult,
} from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Repositories with their issues and pull requests. */
export class Repositories {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Here, unless `kind` says where. */
  create(input: RouteBody<'createRepository'>, { signal }: CallOptions = {}): Promise<Repository> {
    return this.#caller.call('createRepository', { body: input, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<Repository[]> {
    return (await this.#caller.call('listRepositories', { signal })).items;
  }

  at(name: string): RepositoryHandle {
    return new RepositoryHandle(this.#caller, name);
  }
}

export class RepositoryHandle {
  readonly name: string;
  readonly #caller: Caller;

  constructor(caller: Caller, name: string) {
    this.#caller = caller;
    this.name = name;
  }

  info({ signal }: CallOptions = {}): Promise<Repository> {
    return this.#caller.call('getRepository', { params: this.#params, signal });
  }

  async remove({ signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeRepository', { params: this.#params, signal });
  }

  /** Tries the forge on a scratch branch. */
  doctor({ signal }: CallOptions = {}): Promise<ForgeDoctor> {
    return this.#caller.call('examineForge', { params: this.#params, signal });
  }

  async issues({ signal }: CallOptions = {}): Promise<Issue[]> {
    return (await this.#caller.call('listIssues', { params: this.#params, signal })).items;
  }

  createIssue(input: RouteBody<'createIssue'>, { signal }: CallOptions = {}): Promise<Issue> {
    return this.#caller.call('createIssue', { params: this.#params, body: input, signal });
  }

  issue(id: string, { signal }: CallOptions = {}): Promise<Issue> {
    return this.#caller.call('getIssue', { params: { ...this.#params, issue: id }, signal });
  }

  async comments(issue: string, { signal }: CallOptions = {}): Promise<IssueComment[]> {
    return (await this.#caller.call('listIssueComments', { params: { ...this.#params, issue }, signal }))
      .items;
  }

  comment(issue: string, body: string, { signal }: CallOptions = {}): Promise<IssueComment> {
    return this.#caller.call('commentIssue', { params: { ...this.#params, issue }, body: { body }, signal });
  }

  async pulls({
    signal,
    state = 'open',
  }: CallOptions & { readonly state?: 'open' | 'all' } = {}): Promise<Pull[]> {
    return (await this.#caller.call('listPulls', { params: this.#params, query: { state }, signal })).items;
  }

  createPull(input: RouteBody<'createPull'>, { signal }: CallOptions = {}): Promise<Pull> {
    return this.#caller.call('createPull', { params: this.#params, body: input, signal });
  }

  pull(number: number, { signal }: CallOptions = {}): Promise<Pull> {
    return this.#caller.call('getPull', { params: { ...this.#params, pull: number }, signal });
  }

  closePull(number: number, { signal }: CallOptions = {}): Promise<Pull> {
    return this.#caller.call('closePull', { params: { ...this.#params, pull: number }, signal });
  }

  /** Only if its head is still the commit that you looked at. */
  mergePull(
    number: number,
    input: RouteBody<'mergePull'>,
    { signal }: CallOptions = {},
  ): Promise<RouteResult<'mergePull'>> {
    return this.#caller.call('mergePull', { params: { ...this.#params, pull: number }, body: input, signal });
  }

  async reviews(pull: number, { signal }: CallOptions = {}): Promise<Review[]> {
    return (await this.#caller.call('listReviews', { params: { ...this.#params, pull }, signal })).items;
  }

  review(pull: number, input: RouteBody<'reviewPull'>, { signal }: CallOptions = {}): Promise<Review> {
    return this.#caller.call('reviewPull', { params: { ...this.#params, pull }, body: input, signal });
  }

  async checks(sha: string, { signal }: CallOptions = {}): Promise<Check[]> {
    return (await this.#caller.call('listChecks', { params: { ...this.#params, sha }, signal })).items;
  }

  async reportCheck(input: RouteBody<'reportCheck'>, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('reportCheck', { params: this.#params, body: input, signal });
  }

  get #params(): { repository: string } {
    return { repository: this.name };
  }
}
