import { randomBytes } from 'node:crypto';
import { CoppiceError, type MergedCommits, type mergeCommitsSchema } from '@coppice/protocol';
import type { z } from 'zod';
import { agent, type GitRepository } from './git-repository.ts';

export type MergeStrategy = z.output<typeof mergeCommitsSchema>['strategy'];
type MergedSource = MergedCommits['sources'][number];
type MergeConflict = MergedCommits['conflicts'][number];

/** A repository in a sandbox, and how files get out of and into that sandbox. */
export interface MergePlace {
  readonly id: string;
  readonly name: string;
  readonly git: GitRepository;
  readonly read: (path: string) => Promise<AsyncIterable<Uint8Array>>;
  readonly write: (path: string, bytes: AsyncIterable<Uint8Array>) => Promise<unknown>;
  readonly remove: (path: string) => Promise<void>;
}

interface MergeOutcome {
  readonly merged: MergedSource | undefined;
  readonly conflicts: MergeConflict[];
}

/** Older commits are not looked at: a fork that is so far behind its origin gives them again. */
const mostCommits = 20_000;
const patient = { timeoutSecs: 300 };

/**
 * Brings the commits of one sandbox's repository, from where it left the target's history on, into the repository of another.
 * They travel as a bundle, byte by byte, so binary files, authors and merges arrive as they are.
 *
 * A commit that is replayed names the one it was made from (`git cherry-pick -x`). So a merge can be repeated, and go the other
 * way: what came in before, or came from here, is left out by its name, whatever has changed around it.
 */
export class GitMerge {
  readonly #target: MergePlace;
  readonly #git: GitRepository;

  constructor(target: MergePlace) {
    this.#target = target;
    this.#git = target.git;
  }

  async assertReady(): Promise<void> {
    const changed = await this.#git.run(['status', '--porcelain', '--untracked-files=no']);
    if (changed !== '')
      throw new CoppiceError(
        'wrong_state',
        `${this.#git.path} in sandbox ${this.#target.name} has changes that are not committed`,
        { hint: 'Commit them there, then merge again.' },
      );
  }

  async bringIn(source: MergePlace, strategy: MergeStrategy, message?: string): Promise<MergeOutcome> {
    const theirs = source.git;
    const uncommitted = (await theirs.run(['status', '--porcelain'])) !== '';
    const base = await this.#forkPoint(source);
    const tip = await theirs.run(['rev-parse', 'HEAD']);
    const merged = (commits: number): MergedSource => ({
      sandbox_id: source.id,
      name: source.name,
      commits,
      uncommitted_changes: uncommitted,
    });
    if (tip === base) return { merged: merged(0), conflicts: [] };
    const ref = `refs/coppice/merge/${source.id}`;
    await this.#fetch(source, base, ref);
    try {
      if (strategy === 'branch-per-source') return await this.#mergeBranch(source, ref, message, merged);
      const missing = await this.#missing(ref);
      if (strategy === 'cherry-pick') return await this.#pickEach(source, missing, merged);
      const picked = await this.#pick(missing);
      return typeof picked === 'number'
        ? { merged: merged(picked), conflicts: [] }
        : { merged: undefined, conflicts: [{ sandbox_id: source.id, ...picked }] };
    } finally {
      await this.#git.run(['update-ref', '-d', ref]);
    }
  }

  async #mergeBranch(
    source: MergePlace,
    ref: string,
    message: string | undefined,
    merged: (commits: number) => MergedSource,
  ): Promise<MergeOutcome> {
    const commits = Number(await this.#git.run(['rev-list', '--count', `HEAD..${ref}`]));
    await this.#git.run(['branch', '--force', `merge/${source.name}`, ref]);
    const title = message ?? `Merge sandbox ${source.name}`;
    const args = ['merge', '--no-ff', '--no-edit', '-m', title, ref];
    const result = await this.#git.try(args, { env: identity, ...patient });
    if (result.exitCode === 0) return { merged: merged(commits), conflicts: [] };
    const files = await this.#unmerged();
    await this.#git.try(['merge', '--abort']);
    if (files.length === 0) throw this.#git.failure('merge', result);
    return { merged: undefined, conflicts: [{ sandbox_id: source.id, ...conflictIn(files) }] };
  }

  /** One commit after the other: one that does not fit is left out and named, the others go in. */
  async #pickEach(
    source: MergePlace,
    missing: readonly string[],
    merged: (commits: number) => MergedSource,
  ): Promise<MergeOutcome> {
    const conflicts: MergeConflict[] = [];
    let applied = 0;
    for (const commit of missing) {
      const picked = await this.#pick([commit]);
      if (typeof picked === 'number') applied += picked;
      else
        conflicts.push({
          sandbox_id: source.id,
          ...picked,
          error: `${commit.slice(0, 10)}: ${picked.error}`,
        });
    }
    return { merged: applied > 0 || conflicts.length === 0 ? merged(applied) : undefined, conflicts };
  }

  /** Replays commits: all of them, and says how many changed anything; or none, and says what is in conflict. */
  async #pick(commits: readonly string[]): Promise<number | Pick<MergeConflict, 'error' | 'files'>> {
    if (commits.length === 0) return 0;
    const before = await this.#git.run(['rev-parse', 'HEAD']);
    const options = { env: identity, ...patient };
    let result = await this.#git.try(['cherry-pick', '-x', '--allow-empty', '--stdin'], {
      ...options,
      stdin: commits.join('\n'),
    });
    while (result.exitCode !== 0) {
      const files = await this.#unmerged();
      // Git stops at a commit whose changes are all there already.
      const nothingToDo = files.length === 0 && (await this.#isPicking());
      if (nothingToDo) {
        result = await this.#git.try(['cherry-pick', '--skip'], options);
        continue;
      }
      await this.#git.try(['cherry-pick', '--abort']);
      if (files.length === 0) throw this.#git.failure('cherry-pick', result);
      return conflictIn(files);
    }
    return Number(await this.#git.run(['rev-list', '--count', `${before}..HEAD`]));
  }

  async #isPicking(): Promise<boolean> {
    const picking = await this.#git.try(['rev-parse', '--verify', '--quiet', 'CHERRY_PICK_HEAD']);
    const clean = await this.#git.run(['status', '--porcelain', '--untracked-files=no']);
    return picking.exitCode === 0 && clean === '';
  }

  async #unmerged(): Promise<string[]> {
    const names = await this.#git.run(['diff', '--name-only', '--diff-filter=U', '-z']);
    return names.split('\0').filter((name) => name !== '');
  }

  /** Commits of the source that the target has in no form, oldest first. */
  async #missing(ref: string): Promise<string[]> {
    const ours = new Set(
      [...(await this.#commits('HEAD')), ...(await this.#origins('HEAD')).values()].flat(),
    );
    const theirs = await this.#origins(`HEAD..${ref}`);
    const list = await this.#git.run([
      'rev-list',
      '--reverse',
      '--topo-order',
      '--no-merges',
      `HEAD..${ref}`,
    ]);
    return lines(list).filter(
      (commit) => !ours.has(commit) && !(theirs.get(commit) ?? []).some((origin) => ours.has(origin)),
    );
  }

  async #commits(range: string): Promise<string[]> {
    return lines(await this.#git.run(['rev-list', `--max-count=${mostCommits}`, range]));
  }

  /** What commits were made from, by their own words. */
  async #origins(range: string): Promise<Map<string, string[]>> {
    const format = ['--grep=^(cherry picked from commit [0-9a-f]*)$', '--format=commit %H%n%(trailers)'];
    const text = await this.#git.run(['log', `--max-count=${mostCommits}`, ...format, range], {
      maxOutputBytes: 16 * 1024 * 1024,
    });
    const origins = new Map<string, string[]>();
    let current: string[] = [];
    for (const line of lines(text)) {
      const [, commit, origin] =
        /^(?:commit ([0-9a-f]{40,64})|\(cherry picked from commit ([0-9a-f]{40,64})\))$/.exec(line) ?? [];
      if (commit !== undefined) {
        current = [];
        origins.set(commit, current);
      } else if (origin !== undefined) current.push(origin);
    }
    return origins;
  }

  /** The newest commit that both have. */
  async #forkPoint(source: MergePlace): Promise<string> {
    const ours = new Set(await this.#commits('HEAD'));
    const list = await source.git.run(['rev-list', '--topo-order', `--max-count=${mostCommits}`, 'HEAD']);
    const common = lines(list).find((sha) => ours.has(sha));
    if (common !== undefined) return common;
    throw new CoppiceError(
      'conflict',
      `the repositories of ${source.name} and ${this.#target.name} have no commit in common`,
      { hint: 'Merge sandboxes that were forked from one another, after a commit in both.' },
    );
  }

  async #fetch(source: MergePlace, base: string, ref: string): Promise<void> {
    const file = `/tmp/coppice-merge-${randomBytes(6).toString('hex')}.bundle`;
    try {
      await source.git.run(['bundle', 'create', '--quiet', file, 'HEAD', '--not', base], patient);
      await this.#target.write(file, await source.read(file));
      await this.#git.run(['fetch', '--quiet', '--no-tags', file, `HEAD:${ref}`], patient);
    } finally {
      for (const place of [source, this.#target])
        await place.remove(file).catch((error: unknown) => {
          if (!(error instanceof CoppiceError)) throw error;
        });
    }
  }
}

const lines = (text: string): string[] => text.split('\n').filter((line) => line !== '');

const conflictIn = (files: string[]): Pick<MergeConflict, 'error' | 'files'> => ({
  error: `conflicts in ${files.join(', ')}`,
  files,
});

/** Merge commits have a committer too. */
const identity = {
  GIT_COMMITTER_NAME: agent.name,
  GIT_COMMITTER_EMAIL: agent.email,
  GIT_AUTHOR_NAME: agent.name,
  GIT_AUTHOR_EMAIL: agent.email,
  GIT_EDITOR: 'true',
};
