import type {
  GitCloned,
  GitCommitted,
  GitDiff,
  GitPushed,
  GitStatus,
  MergedCommits,
  RouteBody,
} from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

export interface GitDiffOptions extends CallOptions {
  readonly path?: string;
  readonly staged?: boolean;
  /** Only the statistics. */
  readonly stat?: boolean;
  readonly file?: string;
  readonly maxBytes?: number;
}
export type GitCloneOptions = Omit<RouteBody<'gitClone'>, 'url'> & CallOptions;
export type GitCommitOptions = Omit<RouteBody<'gitCommit'>, 'message'> & CallOptions;
export type GitPushOptions = RouteBody<'gitPush'> & CallOptions;
export type MergeCommitsOptions = Omit<RouteBody<'mergeCommits'>, 'from'> & CallOptions;

/** Repositories in one sandbox. Without a path, the one in /workspace. */
export class Git {
  readonly #caller: Caller;
  readonly #params: { readonly sandbox: string };

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#params = { sandbox };
  }

  /** The branch, and what has changed since the last commit. */
  status({ path, signal }: { readonly path?: string } & CallOptions = {}): Promise<GitStatus> {
    return this.#caller.call('gitStatus', { params: this.#params, query: { path }, signal });
  }

  /** Changed lines that are not committed, or those that are staged. */
  diff({ staged, stat, maxBytes, signal, ...rest }: GitDiffOptions = {}): Promise<GitDiff> {
    const flag = (value: boolean | undefined) => (value === undefined ? undefined : (`${value}` as const));
    const query = { ...rest, staged: flag(staged), stat: flag(stat), max_bytes: maxBytes };
    return this.#caller.call('gitDiff', { params: this.#params, query, signal });
  }

  /** A password in the URL is used once and stored nowhere; GIT_TOKEN in the environment of the sandbox serves as one too. */
  clone(url: string, { signal, ...rest }: GitCloneOptions = {}): Promise<GitCloned> {
    return this.#caller.call('gitClone', { params: this.#params, body: { url, ...rest }, signal });
  }

  /** Commits all changes, or with `all: false` what is staged. `commit` is null where there was nothing to commit. */
  commit(message: string, { signal, ...rest }: GitCommitOptions = {}): Promise<GitCommitted> {
    return this.#caller.call('gitCommit', { params: this.#params, body: { message, ...rest }, signal });
  }

  push({ signal, ...body }: GitPushOptions = {}): Promise<GitPushed> {
    return this.#caller.call('gitPush', { params: this.#params, body, signal });
  }

  /**
   * Brings commits of forks into this sandbox's repository. Conflicts are an answer: look at `success`. It can be repeated, and go
   * the other way; commits that are there already are left out.
   */
  merge(from: readonly string[], { signal, ...rest }: MergeCommitsOptions = {}): Promise<MergedCommits> {
    return this.#caller.call('mergeCommits', {
      params: this.#params,
      body: { from: [...from], ...rest },
      signal,
    });
  }
}
