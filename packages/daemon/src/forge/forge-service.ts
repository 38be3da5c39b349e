import { mkdirSync, readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  BareRepository,
  BuiltinForge,
  type Forge,
  Git,
  GitTransport,
  type GitService as GitVerb,
} from '@coppice/forge';
import {
  type Check,
  CoppiceError,
  type commentIssueSchema,
  type createIssueSchema,
  type createPullSchema,
  type createRepositorySchema,
  type createReviewSchema,
  type ForgeDoctor,
  type IdSource,
  type Issue,
  type IssueComment,
  type mergePullSchema,
  type Pull,
  type Repository,
  type Review,
  type reportCheckSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { RepositoryRecord } from '../db/forge-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import { examineForge } from './forge-doctor.ts';
import { type ForgeGateway, placesOf, RemoteForges } from './remote-forges.ts';

export interface ForgeServiceParts {
  readonly directory: string;
  readonly state: State;
  readonly journal: Journal;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly maxPushBytes: number;
  readonly maxRepositoryBytes: number;
  /** Keeps the tokens of repositories elsewhere, and speaks to their forges. */
  readonly gateway: ForgeGateway;
}

const mostGitAtOnce = 8;
const gitTimeoutMs = 15 * 60_000;

/** Repositories: those of the forge that is built in, with their issues and pull requests, and those of forges elsewhere. */
export class ForgeService {
  readonly #parts: ForgeServiceParts;
  readonly #git: Git;
  readonly #transport: GitTransport;
  readonly #locks = new KeyedLock();
  readonly #remotes: RemoteForges;
  #servedAt = 'http://127.0.0.1';

  constructor(parts: ForgeServiceParts) {
    this.#parts = parts;
    this.#remotes = new RemoteForges(parts.gateway);
    this.#git = new Git({ maxPackBytes: parts.maxPushBytes });
    this.#transport = new GitTransport(this.#git, {
      maxRequestBytes: parts.maxPushBytes,
      mostAtOnce: mostGitAtOnce,
      timeoutMs: gitTimeoutMs,
    });
    mkdirSync(parts.directory, { recursive: true, mode: 0o700 });
  }

  /** Where the daemon listens: it stands in addresses that people use. */
  servedAt(url: string): void {
    this.#servedAt = url;
  }

  /** Removes what a crash left of repositories that were never there, or are gone. */
  async sweep(): Promise<void> {
    const known = new Set(this.#parts.state.forge.repositories().map(({ id }) => `${id}.git`));
    for (const name of readdirSync(this.#parts.directory))
      if (/^rp_\w{26}\.git(\.new)?$/.test(name) && !known.has(name))
        await rm(join(this.#parts.directory, name), { recursive: true, force: true });
  }

  async list(): Promise<Repository[]> {
    return this.#parts.state.forge.repositories().map((record) => this.#view(record));
  }

  async get(ref: string): Promise<Repository> {
    return this.#view(this.#record(ref));
  }

  async create(input: z.output<typeof createRepositorySchema>): Promise<Repository> {
    const { state, journal, ids, now } = this.#parts;
    return this.#locks.exclusive(`name ${input.name}`, async () => {
      if (state.forge.repository(input.name) !== undefined)
        throw new CoppiceError('name_taken', `there is already a repository ${input.name}`);
      const made = {
        id: ids.next('repository'),
        name: input.name,
        kind: input.kind,
        url: input.url ?? null,
        remote: input.remote ?? null,
        createdAtMs: now(),
      };
      const defaultBranch =
        input.token === undefined
          ? (input.default_branch ?? 'main')
          : await this.#register(made, input.token);
      const record: RepositoryRecord = { ...made, defaultBranch };
      await BareRepository.create(this.#git, this.#directoryOf(record), record.defaultBranch);
      journal.commit((emit) => {
        state.forge.insertRepository(record);
        emit('repository.created', null, { repository: record.name, kind: record.kind });
      });
      return this.#view(record);
    });
  }

  async remove(ref: string): Promise<void> {
    const record = this.#record(ref);
    const { state, journal } = this.#parts;
    await this.#locks.exclusive(record.id, async () => {
      journal.commit((emit) => {
        state.forge.deleteRepository(record.id);
        emit('repository.removed', null, { repository: record.name });
      });
      if (record.kind !== 'builtin') await this.#remotes.forget(record.id);
      await rm(this.#directoryOf(record), { recursive: true, force: true });
    });
  }

  async issues(ref: string): Promise<Issue[]> {
    return this.#builtin(ref).issues();
  }

  issue(ref: string, id: string): Promise<Issue> {
    return this.forgeOf(ref).issue(id);
  }

  createIssue(ref: string, input: z.output<typeof createIssueSchema>): Promise<Issue> {
    return this.#builtin(ref).createIssue(input);
  }

  comment(ref: string, id: string, { body }: z.output<typeof commentIssueSchema>): Promise<IssueComment> {
    return this.forgeOf(ref).comment(id, body);
  }

  comments(ref: string, id: string): Promise<IssueComment[]> {
    return this.#builtin(ref).comments(id);
  }

  pulls(ref: string, state: 'open' | 'all'): Promise<Pull[]> {
    return this.#builtin(ref).pulls(state);
  }

  pull(ref: string, number: number): Promise<Pull> {
    return this.forgeOf(ref).pull(number);
  }

  async createPull(ref: string, input: z.output<typeof createPullSchema>): Promise<Pull> {
    const { base = this.#record(ref).defaultBranch, ...rest } = input;
    const pull = await this.forgeOf(ref).createPull({ ...rest, base });
    this.#told('pull.opened', ref, pull.number);
    return pull;
  }

  async closePull(ref: string, number: number): Promise<Pull> {
    const pull = await this.forgeOf(ref).closePull(number);
    this.#told('pull.closed', ref, number);
    return pull;
  }

  async mergePull(
    ref: string,
    number: number,
    { expected_head, method, message }: z.output<typeof mergePullSchema>,
  ): Promise<{ merge_sha: string }> {
    const { sha } = await this.forgeOf(ref).mergePull(number, {
      expectedHead: expected_head,
      method,
      ...(message === undefined ? {} : { message }),
    });
    this.#told('pull.merged', ref, number);
    return { merge_sha: sha };
  }

  checks(ref: string, sha: string): Promise<Check[]> {
    return this.forgeOf(ref).checks(sha);
  }

  async reportCheck(ref: string, { sha, url, ...check }: z.output<typeof reportCheckSchema>): Promise<void> {
    await this.forgeOf(ref).reportCheck(sha, { ...check, url: url ?? null });
  }

  reviews(ref: string, number: number): Promise<Review[]> {
    return this.forgeOf(ref).reviews(number);
  }

  /** By whoever has the token: nobody says for themselves who they are. */
  review(
    ref: string,
    number: number,
    tokenId: string | undefined,
    input: z.output<typeof createReviewSchema>,
  ): Promise<Review> {
    const author = this.#parts.state.tokens.all().find(({ id }) => id === tokenId)?.name ?? 'unknown';
    return this.#builtin(ref).review(number, author, input);
  }

  /** Tries everything that the branch workflow needs, on a scratch branch that is gone afterwards. */
  doctor(ref: string): Promise<ForgeDoctor> {
    const { id, kind, defaultBranch } = this.#record(ref);
    return examineForge({
      kind,
      forge: this.forgeOf(id),
      repository: this.repositoryOf(id),
      defaultBranch,
      bringIn: (branches) => this.bringIn(id, branches),
      advance: (branch, to, expected) => this.advance(id, branch, to, expected),
    });
  }

  forgeOf(ref: string): Forge {
    const record = this.#record(ref);
    return record.kind === 'builtin' ? this.#builtin(ref) : this.#remotes.forgeOf(record);
  }

  /** These branches as the forge has them, into the repository that is here. */
  async bringIn(ref: string, branches: readonly string[]): Promise<void> {
    const { id, kind } = this.#record(ref);
    if (kind === 'builtin') return;
    const copy = this.repositoryOf(id);
    await copy.assertRoom(this.#parts.maxRepositoryBytes);
    await this.#remotes.fetch(id, copy, [...new Set(branches)]);
  }

  /** A branch of the forge to a commit that is here already, from where it is expected to be, and forward only. */
  async advance(ref: string, branch: string, to: string, expected: string): Promise<void> {
    const { id, kind } = this.#record(ref);
    const copy = this.repositoryOf(id);
    if (kind !== 'builtin') await this.#remotes.push(id, copy, branch, to);
    await copy.moveBranch(branch, to, expected);
  }

  repositoryOf(ref: string): BareRepository {
    return new BareRepository(this.#git, this.#directoryOf(this.#record(ref)));
  }

  idOf(ref: string): string | undefined {
    return this.#parts.state.forge.repository(ref)?.id;
  }

  /** Git's own protocol: what it answers to one request. */
  async *serveGit(
    ref: string,
    request: {
      readonly service: GitVerb;
      readonly protocol: string | undefined;
      readonly onlyBranch: string | undefined;
      readonly caller: string;
      readonly signal: AbortSignal;
      readonly body?: AsyncIterable<Uint8Array>;
      readonly encoding?: string | undefined;
    },
  ): AsyncGenerator<Uint8Array> {
    const record = this.#record(ref);
    if (record.kind !== 'builtin')
      throw new CoppiceError('wrong_state', `${record.name} is a repository of ${record.kind}`, {
        hint: 'Clone it from there.',
      });
    const { body, encoding, ...asked } = request;
    const transport = { ...asked, directory: this.#directoryOf(record) };
    if (body === undefined) yield* this.#transport.advertise(transport);
    else {
      if (asked.service === 'git-receive-pack')
        await this.repositoryOf(ref).assertRoom(this.#parts.maxRepositoryBytes);
      yield* this.#transport.answer(transport, body, encoding);
    }
  }

  /** Once the forge has taken the token; says its default branch. */
  async #register(
    record: Pick<RepositoryRecord, 'id' | 'kind' | 'url' | 'remote'>,
    token: string,
  ): Promise<string> {
    // What a crash left of one that was never written down.
    await this.#remotes.sweep(new Set(this.#parts.state.forge.repositories().map(({ id }) => id)));
    await this.#remotes.register(record, token);
    try {
      return await this.#remotes.forgeOf(record).defaultBranch();
    } catch (error) {
      await this.#remotes.forget(record.id);
      throw error;
    }
  }

  #builtin(ref: string): BuiltinForge {
    const record = this.#record(ref);
    if (record.kind !== 'builtin')
      throw new CoppiceError('wrong_state', `${record.name} is a repository of ${record.kind}`, {
        hint: 'Its issues, reviews and lists of pull requests are there.',
      });
    const { state, journal } = this.#parts;
    return new BuiltinForge({
      id: record.id,
      name: record.name,
      defaultBranch: record.defaultBranch,
      url: `${this.#servedAt}/v1/forge/repositories/${record.name}`,
      repository: new BareRepository(this.#git, this.#directoryOf(record)),
      records: state.forge,
      exclusive: (work) => this.#locks.exclusive(record.id, work),
      step: (point) => journal.step(point),
    });
  }

  #told(type: string, ref: string, pull: number): void {
    const { name } = this.#record(ref);
    this.#parts.journal.commit((emit) => emit(type, null, { repository: name, pull }));
  }

  #record(ref: string): RepositoryRecord {
    const record = this.#parts.state.forge.repository(ref);
    if (record !== undefined) return record;
    throw new CoppiceError('not_found', `there is no repository ${ref}`, {
      hint: 'List them with `coppice forge ls`, or make one: coppice forge init NAME',
    });
  }

  #directoryOf({ id }: RepositoryRecord): string {
    return join(this.#parts.directory, `${id}.git`);
  }

  #view({ id: _, defaultBranch, createdAtMs, ...record }: RepositoryRecord): Repository {
    return {
      ...record,
      default_branch: defaultBranch,
      clone_url:
        record.kind === 'builtin'
          ? `${this.#servedAt}/git/${record.name}.git`
          : placesOf({ id: '', ...record }).git,
      created_at: new Date(createdAtMs).toISOString(),
    };
  }
}
