import { mkdir, rename, rm } from 'node:fs/promises';
import { branchNameSchema, CoppiceError } from '@coppice/protocol';
import type { Branch, MergeMethod, MergeObstacle } from '../forge.ts';
import { type Git, type GitOptions, gitFailure } from './git.ts';

const shaPattern = /^[0-9a-f]{40}$/;
const mostCommits = 1000;

export interface PlannedMerge {
  /** The commit that the base is to become. */
  readonly sha: string;
  readonly baseSha: string;
}

export interface Person {
  readonly name: string;
  readonly email: string;
}

const conflict = (reason: MergeObstacle, message: string, details: object, hint: string): CoppiceError =>
  new CoppiceError('conflict', message, { hint, details: { reason, ...details } });

/** One bare repository: its branches, and merges without a work tree. */
export class BareRepository {
  readonly directory: string;
  readonly #git: Git;

  constructor(git: Git, directory: string) {
    this.#git = git;
    this.directory = directory;
  }

  /** Appears whole or not at all. */
  static async create(git: Git, directory: string, defaultBranch: string): Promise<BareRepository> {
    const draft = `${directory}.new`;
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft, { recursive: true, mode: 0o700 });
    await git.run(draft, [
      'init',
      '--quiet',
      '--bare',
      '--template=',
      `--initial-branch=${branchOf(defaultBranch)}`,
    ]);
    await rename(draft, directory);
    return new BareRepository(git, directory);
  }

  run(args: readonly string[], options?: GitOptions): Promise<string> {
    return this.#git.run(this.directory, args, options);
  }

  async branch(name: string): Promise<Branch | undefined> {
    const ref = `refs/heads/${branchOf(name)}`;
    const { exitCode, stdout } = await this.#git.try(this.directory, [
      'rev-parse',
      '--verify',
      '--quiet',
      `${ref}^{commit}`,
    ]);
    const sha = stdout.trim();
    return exitCode === 0 && shaPattern.test(sha) ? { name, sha } : undefined;
  }

  async branches(): Promise<Branch[]> {
    const text = await this.run(['for-each-ref', '--format=%(objectname) %(refname:lstrip=2)', 'refs/heads']);
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => ({ sha: line.slice(0, 40), name: line.slice(41) }));
  }

  /** Only where there is none. */
  async createBranch(name: string, sha: string): Promise<void> {
    const ref = `refs/heads/${branchOf(name)}`;
    if (!(await this.has(sha)))
      throw new CoppiceError('not_found', `there is no commit ${sha} to start ${name} from`, {
        hint: 'Name a commit or a branch of this repository.',
      });
    const made = await this.#git.try(this.directory, ['update-ref', ref, sha, '0'.repeat(40)]);
    if (made.exitCode === 0) return;
    if ((await this.branch(name)) !== undefined)
      throw new CoppiceError('name_taken', `there is already a branch ${name}`);
    throw gitFailure(['update-ref'], made);
  }

  /** From where it is expected to be; whoever was faster wins. */
  async moveBranch(name: string, to: string, expected: string): Promise<void> {
    const ref = `refs/heads/${branchOf(name)}`;
    const moved = await this.#git.try(this.directory, ['update-ref', ref, to, expected]);
    if (moved.exitCode === 0) return;
    const now = await this.branch(name);
    if (now?.sha === to) return;
    throw conflict(
      'head_moved',
      `${name} is at ${now?.sha ?? 'nothing'} and not at ${expected} any more`,
      { head: now?.sha ?? null },
      'Look at what was added, then try again.',
    );
  }

  async deleteBranch(name: string): Promise<void> {
    const found = await this.branch(name);
    if (found === undefined)
      throw new CoppiceError('not_found', `there is no branch ${name}`, { hint: 'It may be gone already.' });
    await this.run(['update-ref', '-d', `refs/heads/${name}`, found.sha]);
  }

  /** These branches with all that they need, as one file that git reads. */
  async *bundle(branches: readonly string[], signal?: AbortSignal): AsyncGenerator<Uint8Array> {
    const refs = branches.map((name) => `refs/heads/${branchOf(name)}`);
    yield* this.#git.stream(this.directory, ['bundle', 'create', '--quiet', '-', ...refs], { signal });
  }

  /** Takes a commit and what it needs out of such a file that a stranger made; says its sha. No branch moves. */
  async takeIn(file: string, branch: string): Promise<string> {
    const incoming = `refs/coppice/incoming/${branchOf(branch)}`;
    await this.run(
      [
        'fetch',
        '--quiet',
        '--no-tags',
        '--no-write-fetch-head',
        '/incoming',
        `+refs/heads/${branch}:${incoming}`,
      ],
      {
        show: [{ from: file, at: '/incoming' }],
        config: [['protocol.file.allow', 'always']],
        timeoutMs: 600_000,
      },
    );
    return this.run(['rev-parse', '--verify', `${incoming}^{commit}`]);
  }

  /** Before more is taken in. */
  async assertRoom(mostBytes: number): Promise<void> {
    const told = await this.run(['count-objects', '-v']);
    const kib = ['size', 'size-pack', 'size-garbage'].reduce(
      (sum, name) => sum + Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(told)?.[1] ?? 0),
      0,
    );
    if (kib * 1024 < mostBytes) return;
    throw new CoppiceError(
      'limit_reached',
      `the repository holds ${Math.ceil(kib / 1024)} MiB, and may hold ${Math.floor(mostBytes / 2 ** 20)} MiB`,
      {
        hint: 'Make another one without what is not needed, or raise `limits.forge_repository_mb` in config.json.',
        details: { limit: 'forge_repository_mb' },
      },
    );
  }

  async has(sha: string): Promise<boolean> {
    if (!shaPattern.test(sha)) return false;
    return (await this.#git.try(this.directory, ['cat-file', '-e', `${sha}^{commit}`])).exitCode === 0;
  }

  async isAncestor(older: string, newer: string): Promise<boolean> {
    const { exitCode } = await this.#git.try(this.directory, ['merge-base', '--is-ancestor', older, newer]);
    return exitCode === 0;
  }

  async compare(base: string, head: string): Promise<{ ahead: number; behind: number }> {
    const text = await this.run(['rev-list', '--left-right', '--count', `${base}...${head}`, '--']);
    const [behind, ahead] = text.split(/\s+/).map(Number);
    return { ahead: ahead ?? 0, behind: behind ?? 0 };
  }

  /** What both sides changed so that nobody can say which is meant; none where they merge. */
  async conflicts(baseSha: string, headSha: string): Promise<string[]> {
    const merged = await this.#mergeTrees(baseSha, headSha);
    return typeof merged === 'string' ? [] : merged.conflicts;
  }

  /** Makes the commit of a merge; no branch moves yet. Conflicts are an error and never settled by force. */
  async planMerge(
    baseSha: string,
    headSha: string,
    method: MergeMethod,
    message: string,
    person: Person,
  ): Promise<PlannedMerge> {
    if (method === 'rebase') return { sha: await this.#replay(baseSha, headSha, person), baseSha };
    const tree = await this.#mergeTrees(baseSha, headSha);
    if (typeof tree !== 'string') throw mergeConflict(tree.conflicts);
    const parents = method === 'merge' ? [baseSha, headSha] : [baseSha];
    const sha = await this.#commit(tree, parents, message, { committer: person, author: person });
    return { sha, baseSha };
  }

  /** The new tree, or what is in conflict. */
  async #mergeTrees(ours: string, theirs: string): Promise<string | { conflicts: string[] }> {
    const args = [
      'merge-tree',
      '--write-tree',
      '-z',
      '--no-messages',
      '--name-only',
      '--allow-unrelated-histories',
      ours,
      theirs,
    ];
    const result = await this.#git.try(this.directory, args);
    const [tree = '', ...rest] = result.stdout.split('\0');
    if (result.exitCode === 0 && shaPattern.test(tree.trim())) return tree.trim();
    if (result.exitCode === 1) return { conflicts: [...new Set(rest.filter((name) => name !== ''))] };
    throw gitFailure(args, result);
  }

  /**
   * Each commit again on top of the base. A merge of trees has no way to name its base before git 2.40, so the base gets a
   * stand-in whose parent is that of the commit: then the two have just that parent in common.
   */
  async #replay(baseSha: string, headSha: string, person: Person): Promise<string> {
    const list = await this.run([
      'rev-list',
      '--reverse',
      '--topo-order',
      '--parents',
      `--max-count=${mostCommits + 1}`,
      `${baseSha}..${headSha}`,
    ]);
    const commits = list.split('\n').filter((line) => line !== '');
    if (commits.length > mostCommits)
      throw new CoppiceError('too_large', `a rebase of more than ${mostCommits} commits`, {
        hint: 'Merge it by squash or merge.',
      });
    let tip = baseSha;
    for (const line of commits) {
      const [commit = '', parent, second] = line.split(' ');
      if (parent === undefined || second !== undefined)
        throw new CoppiceError('unsupported', `${commit} is a merge or a root, which cannot be rebased`, {
          hint: 'Merge it by squash or merge.',
        });
      const standIn = await this.#commit(`${tip}^{tree}`, [parent], 'base', {
        committer: person,
        author: person,
      });
      const tree = await this.#mergeTrees(standIn, commit);
      if (typeof tree !== 'string') throw mergeConflict(tree.conflicts);
      const said = await this.run([
        'log',
        '-1',
        '--no-show-signature',
        '--format=%an%x00%ae%x00%ad%x00%B',
        '--date=raw',
        commit,
      ]);
      const [name = '', email = '', date = '', ...body] = said.split('\0');
      tip = await this.#commit(tree, [tip], body.join('\0'), {
        committer: person,
        author: { name, email },
        date,
      });
    }
    return tip;
  }

  async #commit(
    tree: string,
    parents: readonly string[],
    message: string,
    by: { readonly author: Person; readonly committer: Person; readonly date?: string },
  ): Promise<string> {
    return this.run(
      ['commit-tree', '--no-gpg-sign', ...parents.flatMap((parent) => ['-p', parent]), '-F', '-', tree],
      {
        stdin: message,
        env: {
          GIT_AUTHOR_NAME: by.author.name || 'unknown',
          GIT_AUTHOR_EMAIL: by.author.email,
          ...(by.date === undefined ? {} : { GIT_AUTHOR_DATE: by.date }),
          GIT_COMMITTER_NAME: by.committer.name,
          GIT_COMMITTER_EMAIL: by.committer.email,
        },
      },
    );
  }
}

const mergeConflict = (files: readonly string[]): CoppiceError =>
  conflict(
    'merge_conflict',
    `both sides changed ${files.slice(0, 10).join(', ')}${files.length > 10 ? ` and ${files.length - 10} more` : ''}`,
    { files },
    'Merge the base into the branch, settle the conflicts there, and push it.',
  );

/** Whatever comes from outside passes here before it stands in the words of a command. */
export function branchOf(name: string): string {
  const parsed = branchNameSchema.safeParse(name);
  if (parsed.success) return parsed.data;
  throw new CoppiceError('invalid_argument', `${JSON.stringify(name.slice(0, 80))} is no name of a branch`, {
    hint: parsed.error.issues[0]?.message ?? '',
  });
}
