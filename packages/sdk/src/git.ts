import type { GitStatus, MergedCommits, RouteBody } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

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
