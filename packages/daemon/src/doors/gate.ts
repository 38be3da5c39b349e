import {
  type Action,
  type Belonging,
  CoppiceError,
  defaultProject,
  permits,
  type ReferenceKind,
  reaches,
  type Scope,
  splitReference,
} from '@coppice/protocol';
import type { Principal } from '../services.ts';
import type { RateLimiter } from '../tokens/rate-limiter.ts';

export interface GateOptions {
  readonly rateLimiter: RateLimiter;
  /** Whose secret this is; undefined when nobody’s. The key of a page counts only together with its cookie. */
  readonly authenticate: (secret: string, cookie: string | undefined) => Promise<Principal | undefined>;
  /** What that is and belongs to, by any reference that services take; undefined where there is nothing. */
  readonly sandbox: (ref: string) => Promise<Belonging | undefined>;
  readonly snapshot: (ref: string) => Promise<Belonging | undefined>;
  readonly run: (ref: string) => Promise<Belonging | undefined>;
  /** Whether agents are tried out in a project of that id. */
  readonly isTried: (projectId: string) => Promise<boolean>;
}

/**
 * Where a call comes from. The socket of the home is root's alone, and that of a sandbox its own: strangers elsewhere cannot use up what
 * these may do.
 */
export type Origin = 'network' | 'home' | 'inside';

/** What a caller shows. */
export interface Shown {
  readonly secret: string | undefined;
  readonly cookie: string | undefined;
}

/** Who calls, whether they call too often, what they may do and to what: the same for every door. */
export class Gate {
  readonly #options: GateOptions;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /** Whose token this is; counts the call. Needs nothing but the head of a request. */
  async enter({ secret, cookie }: Shown, origin: Origin): Promise<Principal> {
    const principal = secret === undefined ? undefined : await this.#options.authenticate(secret, cookie);
    if (principal !== undefined) {
      this.#options.rateLimiter.take(principal.tokenId);
      return principal;
    }
    // Without a token nothing was looked up. Git asks like this first, to hear that a password is needed.
    if (secret === undefined) throw new CoppiceError('unauthenticated', 'a token is needed');
    this.enterUnknown(origin);
    throw new CoppiceError('unauthenticated', 'this token is not valid');
  }

  /** Counts a call for which nobody needs to be known. All strangers share one limit: an address is cheap to change. */
  enterUnknown(origin: Origin): void {
    this.#options.rateLimiter.take(`unknown ${origin}`);
  }

  /** Whether the token may do that to something; to what, `refer` decides. */
  assertMay(principal: Principal | undefined, action: Action): void {
    if (permits(principal, action)) return;
    throw principal?.role === 'read' && permits({ ...principal, role: 'full' }, action)
      ? lookOnly()
      : unreached();
  }

  /**
   * The reference as services take it, or a refusal: names are looked up in the project of the token, and what it does not reach is
   * refused alike whether it exists or not.
   */
  async refer(principal: Principal | undefined, kind: ReferenceKind, ref: string): Promise<string> {
    const scope = principal?.scope;
    if (scope === undefined || scope.kind === 'admin') return ref;
    const project = await this.#projectOf(scope);
    if (kind === 'project') {
      if (project === ref) return ref;
      throw new CoppiceError('forbidden', `this token reaches the project ${project} only`);
    }
    if (kind === 'tried project') {
      // By its id alone: a name that people gave may be that of another.
      if (project === ref && (await this.#options.isTried(ref))) return ref;
      throw new CoppiceError('not_found', `there is no project ${ref}`);
    }
    if (kind === 'run') {
      const run = await this.#options.run(ref);
      if (run !== undefined && reaches(scope, run)) return ref;
      if (scope.kind !== 'project') throw unreached();
      throw new CoppiceError('not_found', `there is no run ${ref}`);
    }
    const qualified = qualify(ref, kind, project);
    const found = await this.#find(kind, qualified);
    if (found !== undefined && reaches(scope, found)) return qualified;
    if (scope.kind !== 'project') {
      // Which snapshots a sandbox may be made into is for the restore itself to say: what it grew from is another's.
      if (kind === 'snapshot') return qualified;
      throw unreached();
    }
    if (found === undefined && isBareSnapshot(kind, ref)) return qualified;
    throw new CoppiceError('not_found', `there is no ${kind} ${ref}`);
  }

  /** What stands for a project that a call leaves out; undefined where every project is meant. */
  async projectFor(principal: Principal | undefined): Promise<string | undefined> {
    return principal === undefined || principal.scope.kind === 'admin'
      ? undefined
      : this.#projectOf(principal.scope);
  }

  /** Whether git may be spoken to a repository, by its id; says the one branch that may be pushed, where it is but one. */
  assertMayGit(
    { scope, role }: Principal,
    repositoryId: string | undefined,
    isPush: boolean,
  ): string | undefined {
    if (isPush && role === 'read') throw lookOnly();
    if (scope.kind === 'admin') return undefined;
    if (scope.kind === 'branch' && scope.repository === repositoryId) return scope.branch;
    throw unreached();
  }

  /** Counts what a large document costs. */
  charge(principal: Principal, bytes: number): void {
    this.#options.rateLimiter.charge(principal.tokenId, bytes);
  }

  async #find(kind: ReferenceKind, ref: string): Promise<Belonging | undefined> {
    const snapshot = kind === 'sandbox' ? undefined : await this.#options.snapshot(ref);
    return snapshot ?? (kind === 'snapshot' ? undefined : this.#options.sandbox(ref));
  }

  async #projectOf(scope: Exclude<Scope, { kind: 'admin' }>): Promise<string> {
    if (scope.kind === 'project') return scope.project;
    if (scope.kind === 'branch') return defaultProject;
    const project =
      scope.kind === 'run'
        ? (await this.#options.run(scope.runId))?.project
        : (await this.#options.sandbox(scope.sandboxId))?.project;
    return project ?? defaultProject;
  }
}

const unreached = (): CoppiceError =>
  new CoppiceError('forbidden', 'the scope of this token does not cover this');

const lookOnly = (): CoppiceError =>
  new CoppiceError('forbidden', 'this token is read-only', {
    hint: 'Use a token that was made without --read-only.',
  });

const isId = /^(sb|sn)_[0-9a-hjkmnp-tv-z]{26}(:|$)/;

/** With the project in front where it is a name of one. */
const qualify = (ref: string, kind: ReferenceKind, project: string): string => {
  const given = splitReference(ref).project;
  if (given !== undefined && given !== project)
    throw new CoppiceError('forbidden', `this token reaches the project ${project} only`);
  if (given !== undefined || project === defaultProject || isId.test(ref)) return ref;
  return isBareSnapshot(kind, ref) ? ref : `${project}/${ref}`;
};

/** Looked up in the sandbox that the call is about. */
const isBareSnapshot = (kind: ReferenceKind, ref: string): boolean =>
  kind === 'snapshot' && !ref.includes(':') && !isId.test(ref);
