import { randomBytes } from 'node:crypto';
import type { ApplyMergeOptions, MergeConflict } from '@coppice/disks';
import { sideOf } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import { type BenchGit, lines, type Ref } from './bench-git.ts';
import { settle, toConflict, unmergedIn } from './settle-conflicts.ts';

export interface MergedRepository {
  /** Directory of the repository. */
  readonly path: string;
  /** That came into what is checked out; those that were there already do not count. */
  readonly commits: number;
  readonly conflicts: readonly MergeConflict[];
  /** Paths that git looks after on either side, before or after: none of them is merged as a file. */
  readonly tracked: readonly string[];
}

interface Side {
  readonly name: string;
  readonly git: BenchGit;
}

const agent = { NAME: 'Coppice agent', EMAIL: 'agent@coppice.invalid' };
const operations = ['MERGE_HEAD', 'CHERRY_PICK_HEAD', 'REVERT_HEAD', 'REBASE_HEAD'];

/**
 * Brings what one repository has into another, as git does: what is checked out there is merged into what is checked out here, branches
 * go forward or are merged, what is new (branches, tags, notes, stashes) is added, and nothing is removed. So every commit of both
 * sides can be reached afterwards. Both are benches: a merge that stops half-way has changed nothing.
 */
export class RepositoryMerge {
  readonly #ours: Side;
  readonly #theirs: Side;
  readonly #git: BenchGit;
  readonly #choices: ApplyMergeOptions;
  readonly #conflicts: MergeConflict[] = [];
  #identity: Readonly<Record<string, string>> = {};

  constructor(ours: Side, theirs: Side, choices: ApplyMergeOptions) {
    this.#ours = ours;
    this.#theirs = theirs;
    this.#git = ours.git;
    this.#choices = choices;
  }

  async run(): Promise<MergedRepository> {
    const theirs = this.#theirs.git;
    await this.#assertAtRest();
    const before = await this.#git.commit('HEAD');
    const tracked = [...(await this.#git.tracked()), ...(await theirs.tracked())];
    const head = await theirs.commit('HEAD');
    if (head !== undefined) {
      const refs = await theirs.refs();
      const stashes = await theirs.stashes();
      await this.#fetch([head, ...stashes.map(({ sha }) => sha)]);
      await this.#assertRelated(before, head);
      this.#identity = (await this.#git.succeeds('var', 'GIT_COMMITTER_IDENT')) ? {} : identityOf(agent);
      await this.#mergeHeads(head, refs);
      for (const ref of refs) await this.#bring(ref);
      await this.#bringStashes(stashes.reverse());
      tracked.push(...(await this.#git.tracked()));
    }
    const range = before === undefined ? ['HEAD'] : [`${before}..HEAD`];
    return {
      path: this.#git.path,
      commits: head === undefined ? 0 : Number(await this.#git.run(['rev-list', '--count', ...range])),
      conflicts: this.#conflicts,
      tracked,
    };
  }

  async #assertAtRest(): Promise<void> {
    const { name, git } = this.#theirs;
    const changed = await git.run(['status', '--porcelain', '--untracked-files=no', '-z']);
    if (changed !== '') {
      const paths = changed.split('\0').map((record) => record.slice(3));
      const shown = paths.filter((path) => path !== '').slice(0, 5);
      throw new CoppiceError(
        'wrong_state',
        `${git.path} in ${name} has changes that are not committed: ${shown.join(', ')}; nothing was written`,
        {
          hint: `Both sides have new commits, so git merges them. Commit in ${name} first, then merge again.`,
          details: { sandbox: name, repository: git.path, paths: shown },
        },
      );
    }
    for (const side of [this.#ours, this.#theirs])
      for (const operation of operations)
        if (await side.git.succeeds('rev-parse', '--verify', '--quiet', operation))
          throw new CoppiceError(
            'wrong_state',
            `${side.git.path} in ${side.name} is in the middle of a merge (${operation}); nothing was written`,
            { hint: `Finish it in ${side.name} with git, or abort it, then merge again.` },
          );
  }

  /** Unrelated histories are two projects, whatever directory they are in. */
  async #assertRelated(ours: string | undefined, theirs: string): Promise<void> {
    if (ours === undefined || (await this.#git.succeeds('merge-base', ours, theirs))) return;
    throw new CoppiceError(
      'conflict',
      `${this.#git.path} is one repository in ${this.#theirs.name} and another in ${this.#ours.name}: they have no commit in common`,
      {
        hint: `Leave it out with exclude (\`--exclude ${this.#git.path}\`), or move one of them to another directory.`,
        details: { conflicts: [{ path: this.#git.gitDir, ours: 'modified', theirs: 'modified' }] },
      },
    );
  }

  /** All that can be reached there and not here, as one bundle. `also`: commits that no branch or tag names. */
  async #fetch(also: readonly string[]): Promise<void> {
    const theirs = this.#theirs.git;
    for (const [index, sha] of also.entries())
      await theirs.run(['update-ref', `refs/coppice/merge/${index}`, sha]);
    const known = (await this.#git.refs()).map(({ sha }) => sha);
    const head = await this.#git.commit('HEAD');
    const asked = [...new Set([...known, ...(head === undefined ? [] : [head])])];
    const checked = await theirs.run(['cat-file', '--batch-check=%(objectname) %(objecttype)'], {
      stdin: asked.map((sha) => `${sha}\n`).join(''),
    });
    const common = lines(checked).filter((line) => !line.endsWith(' missing'));
    const file = `/tmp/coppice-merge-${randomBytes(6).toString('hex')}.bundle`;
    const bundled = await theirs.try(['bundle', 'create', '--quiet', file, '--all', '--stdin'], {
      stdin: common.map((line) => `^${line.split(' ')[0]}\n`).join(''),
    });
    if (bundled.exitCode !== 0) {
      if (/empty bundle/.test(bundled.stderr)) return;
      throw theirs.failure('bundle', bundled);
    }
    await this.#git.write(file, theirs.read(file));
    await this.#git.run(['bundle', 'unbundle', file]);
  }

  /** What is checked out there, and the branch that is checked out here if it is another one. */
  async #mergeHeads(head: string, refs: readonly Ref[]): Promise<void> {
    await this.#mergeInto(this.#git, head);
    const branch = await this.#git.try(['symbolic-ref', '--quiet', 'HEAD']);
    const same = refs.find(({ name }) => branch.exitCode === 0 && name === branch.stdout.trim());
    if (same !== undefined && this.#conflicts.length === 0) await this.#mergeInto(this.#git, same.sha);
  }

  /** Says whether all of it is merged: what nobody has chosen a side for is noted as a conflict. */
  async #mergeInto(git: BenchGit, commit: string, named = (path: string) => path): Promise<boolean> {
    const title = `Merge sandbox ${this.#theirs.name}`;
    const options = { env: this.#identity };
    const merged = await git.try(['merge', '--quiet', '--no-edit', '-m', title, commit], options);
    if (merged.exitCode === 0) return true;
    const unmerged = await unmergedIn(git);
    if (unmerged.length === 0) throw this.#refused(git.failure('merge', merged), merged.stderr);
    let isSettled = true;
    for (const one of unmerged) {
      const conflict = toConflict(git, one);
      const path = named(conflict.path);
      if (!this.#conflicts.some((known) => known.path === path)) this.#conflicts.push({ ...conflict, path });
      const side = sideOf(this.#choices, path);
      if (side === undefined) isSettled = false;
      else await settle(git, one, side);
    }
    if (isSettled) await git.run(['commit', '--quiet', '--no-verify', '-m', title], options);
    return isSettled;
  }

  /** Git does not touch files that have changes of their own. */
  #refused(failure: CoppiceError, stderr: string): CoppiceError {
    const paths = lines(stderr).flatMap((line) => (line.startsWith('\t') ? [line.trim()] : []));
    if (paths.length === 0) return failure;
    const { name, git } = this.#ours;
    return new CoppiceError(
      'wrong_state',
      `${git.path} in ${name} has changes that are not committed in files that the merge would write: ${paths.slice(0, 5).join(', ')}; nothing was written`,
      {
        hint: `Commit them in ${name} first, then merge again.`,
        details: { sandbox: name, repository: git.path, paths },
      },
    );
  }

  async #bring({ name, sha }: Ref): Promise<void> {
    if (name === 'refs/stash' || name.startsWith('refs/coppice/')) return;
    const here = await this.#git.try(['rev-parse', '--verify', '--quiet', name]);
    const ours = here.exitCode === 0 ? here.stdout.trim() : undefined;
    if (ours === sha) return;
    if (ours === undefined) return this.#set(name, sha);
    const isCommit = (await this.#git.commit(ours)) === ours && (await this.#git.commit(sha)) === sha;
    const isTag = name.startsWith('refs/tags/');
    if (isCommit && !isTag) {
      if (await this.#git.isAncestor(sha, ours)) return;
      const isCurrent = (await this.#git.try(['symbolic-ref', '--quiet', 'HEAD'])).stdout.trim() === name;
      // Merged before, or in conflict, which is known then.
      if (isCurrent) return;
      if (await this.#git.isAncestor(ours, sha)) return this.#set(name, sha);
      if (name.startsWith('refs/heads/')) return this.#mergeBranch(name, ours, sha);
    }
    // What a remote had is of the side that asked it last, and neither is lost by that.
    if (name.startsWith('refs/remotes/')) return;
    const path = `${this.#git.gitDir}/${name}`;
    this.#conflicts.push({ path, ours: 'modified', theirs: 'modified' });
    if (sideOf(this.#choices, path) === 'theirs') await this.#set(name, sha);
  }

  /** A branch that is not checked out is merged beside it. Its conflicts are those of the branch. */
  async #mergeBranch(name: string, ours: string, theirs: string): Promise<void> {
    const path = `${this.#git.gitDir}/${name}`;
    const directory = `/tmp/coppice-merge-${randomBytes(6).toString('hex')}`;
    await this.#git.run(['worktree', 'add', '--quiet', '--detach', directory, ours]);
    try {
      const beside = this.#git.beside(directory);
      if (await this.#mergeInto(beside, theirs, () => path))
        await this.#set(name, await beside.run(['rev-parse', 'HEAD']));
    } finally {
      await this.#git.run(['worktree', 'remove', '--force', directory]);
    }
  }

  async #set(name: string, sha: string): Promise<void> {
    await this.#git.run(['update-ref', '-m', `merge sandbox ${this.#theirs.name}`, name, sha]);
  }

  /** The oldest first, so that they lie as they did there. */
  async #bringStashes(stashes: readonly { sha: string; message: string }[]): Promise<void> {
    const known = new Set((await this.#git.stashes()).map(({ sha }) => sha));
    for (const { sha, message } of stashes)
      if (!known.has(sha)) await this.#git.run(['stash', 'store', '-m', message, sha]);
  }
}

const identityOf = ({ NAME, EMAIL }: typeof agent): Record<string, string> => ({
  GIT_AUTHOR_NAME: NAME,
  GIT_AUTHOR_EMAIL: EMAIL,
  GIT_COMMITTER_NAME: NAME,
  GIT_COMMITTER_EMAIL: EMAIL,
});
