import { randomBytes } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import { GuestGit } from './guest-git.ts';
import type { ToolContext } from './tool-context.ts';

export const mergeStrategies = ['sequential', 'branch-per-source', 'cherry-pick'] as const;
export type MergeStrategy = (typeof mergeStrategies)[number];

export interface MergePlace {
  readonly id: string;
  readonly name: string;
  readonly path: string;
}

export interface MergedSource {
  readonly source_id: string;
  readonly name: string;
  readonly commits: number;
  readonly uncommitted_changes: boolean;
}

export interface MergeConflict {
  readonly source_id: string;
  readonly error: string;
  readonly files: string[];
}

export interface MergeOutcome {
  readonly merged: MergedSource | undefined;
  readonly conflicts: MergeConflict[];
}

/**
 * Brings the commits of one workspace's repository, from where it left the target's history on, into the repository of
 * another. They travel as a bundle, byte by byte, so binary files, authors and merges arrive as they are.
 */
export class GitMerge {
  readonly #context: ToolContext;
  readonly #target: MergePlace;
  readonly #git: GuestGit;

  constructor(context: ToolContext, target: MergePlace) {
    this.#context = context;
    this.#target = target;
    this.#git = new GuestGit(context, target.id, target.path);
  }

  async assertReady(): Promise<void> {
    const changed = await this.#git.run(['status', '--porcelain', '--untracked-files=no']);
    if (changed !== '')
      throw new CoppiceError(
        'wrong_state',
        `${this.#target.path} in workspace ${this.#target.name} has changes that are not committed`,
        {
          hint: 'Commit them with git_commit, then merge again.',
        },
      );
  }

  async bringIn(
    source: MergePlace,
    strategy: MergeStrategy,
    message: string | undefined,
  ): Promise<MergeOutcome> {
    const theirs = new GuestGit(this.#context, source.id, source.path);
    const uncommitted = (await theirs.run(['status', '--porcelain'])) !== '';
    const base = await this.#forkPoint(theirs, source);
    const tip = await theirs.run(['rev-parse', 'HEAD']);
    const merged = (commits: number): MergedSource => ({
      source_id: source.id,
      name: source.name,
      commits,
      uncommitted_changes: uncommitted,
    });
    if (tip === base) return { merged: merged(0), conflicts: [] };
    const ref = `refs/coppice/merge/${source.id}`;
    await this.#fetch(theirs, source, base, ref);
    try {
      if (strategy === 'cherry-pick') return await this.#pickEach(source, base, ref, merged);
      if (strategy === 'branch-per-source')
        await this.#git.run(['branch', '--force', `merge/${source.name}`, ref]);
      const commits = Number(await this.#git.run(['rev-list', '--count', `${base}..${ref}`]));
      const title = message ?? `Merge workspace ${source.name}`;
      const failed =
        strategy === 'branch-per-source'
          ? await this.#attempt(['merge', '--no-ff', '--no-edit', '-m', title, ref], 'merge')
          : await this.#attempt(
              ['cherry-pick', '--allow-empty', '--keep-redundant-commits', `${base}..${ref}`],
              'cherry-pick',
            );
      return failed === undefined
        ? { merged: merged(commits), conflicts: [] }
        : { merged: undefined, conflicts: [{ source_id: source.id, ...failed }] };
    } finally {
      await this.#git.run(['update-ref', '-d', ref]);
    }
  }

  /** One commit after the other: one that does not fit is left out and named, the others go in. */
  async #pickEach(
    source: MergePlace,
    base: string,
    ref: string,
    merged: (commits: number) => MergedSource,
  ): Promise<MergeOutcome> {
    const list = await this.#git.run(['rev-list', '--reverse', '--no-merges', `${base}..${ref}`]);
    const conflicts: MergeConflict[] = [];
    let applied = 0;
    for (const commit of list.split('\n').filter((line) => line !== '')) {
      const failed = await this.#attempt(
        ['cherry-pick', '--allow-empty', '--keep-redundant-commits', commit],
        'cherry-pick',
      );
      if (failed === undefined) applied += 1;
      else
        conflicts.push({ source_id: source.id, ...failed, error: `${commit.slice(0, 10)}: ${failed.error}` });
    }
    return { merged: applied > 0 || conflicts.length === 0 ? merged(applied) : undefined, conflicts };
  }

  /** Either it is all in, or the repository is as it was before. */
  async #attempt(
    args: string[],
    verb: 'merge' | 'cherry-pick',
  ): Promise<{ error: string; files: string[] } | undefined> {
    const result = await this.#git.try(args, { env: identity, timeoutSecs: 300 });
    if (result.exitCode === 0) return undefined;
    const files = (await this.#git.run(['diff', '--name-only', '--diff-filter=U', '-z']))
      .split('\0')
      .filter((name) => name !== '');
    await this.#git.try([verb, '--abort']);
    if (files.length === 0) throw this.#git.failure(verb, result);
    return { error: `conflicts in ${files.join(', ')}`, files };
  }

  /** The newest commit that both have. */
  async #forkPoint(theirs: GuestGit, source: MergePlace): Promise<string> {
    const limit = ['--max-count=20000'];
    const ours = new Set((await this.#git.run(['rev-list', ...limit, 'HEAD'])).split('\n'));
    const common = (await theirs.run(['rev-list', '--topo-order', ...limit, 'HEAD']))
      .split('\n')
      .find((sha) => ours.has(sha));
    if (common !== undefined) return common;
    throw new CoppiceError(
      'conflict',
      `the repositories of ${source.name} and ${this.#target.name} have no commit in common`,
      {
        hint: 'Merge workspaces that were forked from one another, after git_commit in both.',
      },
    );
  }

  async #fetch(theirs: GuestGit, source: MergePlace, base: string, ref: string): Promise<void> {
    const file = `/tmp/coppice-merge-${randomBytes(6).toString('hex')}.bundle`;
    const context = this.#context;
    const query = { path: file };
    try {
      await theirs.run(['bundle', 'create', '--quiet', file, 'HEAD', '--not', base], { timeoutSecs: 300 });
      const { bytes } = await context.call('readFile', { params: { sandbox: source.id }, query });
      await context.call('writeFile', { params: { sandbox: this.#target.id }, query }, { upload: bytes });
      await this.#git.run(['fetch', '--quiet', '--no-tags', file, `HEAD:${ref}`], { timeoutSecs: 300 });
    } finally {
      for (const id of [source.id, this.#target.id])
        await context.call('removeFile', { params: { sandbox: id }, query }).catch((error: unknown) => {
          if (!(error instanceof CoppiceError)) throw error;
        });
    }
  }
}

/** Merge commits have a committer too. */
const identity = {
  GIT_COMMITTER_NAME: 'Coppice agent',
  GIT_COMMITTER_EMAIL: 'agent@coppice.invalid',
  GIT_AUTHOR_NAME: 'Coppice agent',
  GIT_AUTHOR_EMAIL: 'agent@coppice.invalid',
  GIT_EDITOR: 'true',
};
