import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { type CallOptions, defaultTakeOut, type Sandbox, type TakeOut } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { broughtIn, commitLabel, pathLabel } from './bring-in.ts';
import { git, gitBytes } from './git.ts';

/** A patch is held in memory. */
const patchBytes = 512 * 1024 ** 2;

/**
 * What became of a directory that was brought in. Everything that comes out of the sandbox is data: git works on it with a repository
 * of our own, and never with one that the sandbox has written.
 */
export class Result implements AsyncDisposable {
  /** Where the directory is inside. */
  readonly path: string;
  /** What changed since it was brought in, as git writes it. */
  readonly patch: Buffer;
  readonly #cli: Cli;
  readonly #sandbox: Sandbox;
  readonly #scratch: string;
  readonly #commit: string | undefined;
  readonly #takeOut: TakeOut;

  private constructor(
    cli: Cli,
    sandbox: Sandbox,
    scratch: string,
    takeOut: TakeOut,
    found: { path: string; patch: Buffer; commit: string | undefined },
  ) {
    this.#cli = cli;
    this.#takeOut = takeOut;
    this.#sandbox = sandbox;
    this.#scratch = scratch;
    this.#commit = found.commit;
    this.path = found.path;
    this.patch = found.patch;
  }

  static async of(cli: Cli, ref: string, asked: string | undefined, takeOut: TakeOut): Promise<Result> {
    const { signal } = cli;
    const sandbox = await cli.coppice.sandboxes.get(ref, { signal });
    const labels = sandbox.info?.labels ?? {};
    const path = asked ?? labels[pathLabel];
    const snapshots = await sandbox.snapshots({ signal });
    const base =
      snapshots.find(({ name }) => name === broughtIn)?.id ?? (await inherited(cli, sandbox, signal));
    if (path === undefined || base === undefined)
      throw new CoppiceError('wrong_state', `nothing was brought in to sandbox ${sandbox.name}`, {
        hint: `Copy files out with \`coppice cp ${sandbox.name}:/path .\`; or create it with --copy-in or --clone.`,
      });
    const scratch = await mkdtemp(join(tmpdir(), 'coppice-pull-'));
    try {
      await git(['init', '--quiet', '--bare', join(scratch, 'git')]);
      const before = await cli.out.during('reading what was brought in', () =>
        treeOfSnapshot(cli, base, path, scratch, takeOut),
      );
      const after = await cli.out.during('reading what is there now', () =>
        treeOf(sandbox, path, join(scratch, 'after'), scratch, { ...takeOut, signal }),
      );
      const patch = await gitBytes(
        ['diff', '--binary', '--no-ext-diff', '--no-textconv', '--no-renames', before, after],
        { ...own(scratch), maxBytes: patchBytes },
      );
      const commit = path === labels[pathLabel] ? labels[commitLabel] : undefined;
      return new Result(cli, sandbox, scratch, takeOut, { path, patch, commit });
    } catch (error) {
      await rm(scratch, { recursive: true, force: true });
      throw error;
    }
  }

  /** All of it, or nothing where one file does not fit. */
  async applyTo(directory: string): Promise<void> {
    await mkdir(directory, { recursive: true });
    const env = { GIT_DIR: join(this.#scratch, 'git'), GIT_WORK_TREE: directory };
    await git(['apply', '--whitespace=nowarn', '-'], { cwd: directory, env, input: this.patch });
  }

  /** Commits that were made inside come as they are; what was not committed there becomes one more. */
  async toBranch(repository: string, branch: string): Promise<string> {
    const inRepository = ['-C', repository];
    const base = this.#commit ?? (await git([...inRepository, 'rev-parse', 'HEAD']));
    await git([...inRepository, 'check-ref-format', '--branch', branch]);
    const ref = `refs/heads/${branch}`;
    if (await isThere(repository, ref))
      throw new CoppiceError('name_taken', `${repository} already has a branch ${branch}`, {
        hint: 'Choose another name, or delete that branch first.',
      });
    const tip = (await this.#fetchCommits(repository, base)) ?? base;
    const index = join(this.#scratch, 'index');
    const env = { GIT_INDEX_FILE: index };
    await git([...inRepository, 'read-tree', tip], { env });
    if (tip === base && this.patch.length > 0)
      await git([...inRepository, 'apply', '--cached', '--whitespace=nowarn', '-'], {
        env,
        input: this.patch,
      });
    else if (tip !== base)
      await git(['--work-tree', join(this.#scratch, 'after'), ...inRepository, 'add', '--all', '.'], {
        env: { ...env, GIT_DIR: await git([...inRepository, 'rev-parse', '--absolute-git-dir']) },
        cwd: join(this.#scratch, 'after'),
      });
    const tree = await git([...inRepository, 'write-tree'], { env });
    const head =
      tree === (await git([...inRepository, 'rev-parse', `${tip}^{tree}`]))
        ? tip
        : await this.#commitTree(repository, tree, tip);
    await git([...inRepository, 'update-ref', ref, head, '0'.repeat(40)]);
    return head;
  }

  /** A bundle is objects and names, checked when they are taken in. Undefined where nothing was committed inside. */
  async #fetchCommits(repository: string, base: string): Promise<string | undefined> {
    if (this.#commit === undefined) return undefined;
    // Through a shell: where there is no git it says so by its exit code.
    const inside = ['/bin/sh', '-c', 'exec git "$@"', 'git', '-c', 'safe.directory=*', '-C', this.path];
    const { signal } = this.#cli;
    const head = await this.#sandbox.exec([...inside, 'rev-parse', 'HEAD'], { signal, cwd: '/' });
    const tip = head.stdout.trim();
    if (head.exit_code !== 0 || !/^[0-9a-f]{40}$/.test(tip) || tip === base) return undefined;
    const there = `/tmp/coppice-pull-${process.pid}.bundle`;
    const made = await this.#sandbox.exec([...inside, 'bundle', 'create', there, 'HEAD', `^${base}`], {
      signal,
      cwd: '/',
    });
    if (made.exit_code !== 0) {
      this.#cli.out.note(`its commits could not be read and become one: ${made.stderr.trim()}`);
      return undefined;
    }
    const here = join(this.#scratch, 'commits.bundle');
    const { maxBytes = defaultTakeOut.maxBytes } = this.#takeOut;
    await pipeline(this.#sandbox.files.readStream(there, { signal, maxBytes }), createWriteStream(here));
    await this.#sandbox.files.remove(there, { signal });
    await git([
      ...['-C', repository, '-c', 'fetch.fsckObjects=true'],
      ...['fetch', '--quiet', '--no-tags', '--no-write-fetch-head', here, 'HEAD'],
    ]);
    await git(['-C', repository, 'cat-file', '-e', `${tip}^{commit}`]);
    return tip;
  }

  async #commitTree(repository: string, tree: string, parent: string): Promise<string> {
    const message = `From the sandbox ${this.#sandbox.name}`;
    const known = await git(['-C', repository, 'config', 'user.email']).catch(() => '');
    const env = known === '' ? someone : {};
    return git(['-C', repository, 'commit-tree', tree, '-p', parent, '-m', message], { env });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#scratch, { recursive: true, force: true });
  }
}

const someone = {
  GIT_AUTHOR_NAME: 'Coppice',
  GIT_AUTHOR_EMAIL: 'coppice@localhost',
  GIT_COMMITTER_NAME: 'Coppice',
  GIT_COMMITTER_EMAIL: 'coppice@localhost',
};

/** Git as if nobody had configured it. */
const own = (scratch: string, workTree?: string) => ({
  env: {
    GIT_DIR: join(scratch, 'git'),
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_SYSTEM: '/dev/null',
    ...(workTree === undefined ? {} : { GIT_WORK_TREE: workTree }),
  },
  ...(workTree === undefined ? {} : { cwd: workTree }),
});

const isThere = async (repository: string, ref: string): Promise<boolean> =>
  (await git(['-C', repository, 'for-each-ref', '--format=%(refname)', ref])) === ref;

/** What a fork grew from holds what was brought in before it. */
const inherited = async (cli: Cli, sandbox: Sandbox, signal: AbortSignal): Promise<string | undefined> => {
  for (let parent = sandbox.info?.parent ?? null; parent !== null; ) {
    const { snapshot_id: from, sandbox_id: source } = parent;
    const all = await cli.coppice.snapshots.list({ signal });
    const grown = all.find(({ id }) => id === from);
    if (grown?.name === broughtIn) return grown.id;
    const found = all.find(({ sandbox_id, name }) => sandbox_id === source && name === broughtIn);
    if (found !== undefined) return found.id;
    const above =
      source === null
        ? undefined
        : await cli.coppice.sandboxes.get(source, { signal }).catch(() => undefined);
    parent = above?.info?.parent ?? null;
  }
  return undefined;
};

const treeOfSnapshot = async (
  cli: Cli,
  id: string,
  path: string,
  scratch: string,
  takeOut: TakeOut,
): Promise<string> => {
  const { signal } = cli;
  const { sandboxes } = await cli.coppice.snapshots.fork(id, { signal });
  try {
    return await treeOf(sandboxes[0]!, path, join(scratch, 'before'), scratch, { ...takeOut, signal });
  } finally {
    for (const fork of sandboxes) await fork.destroy();
  }
};

/** Without anything that git would take for a repository; what its ignore rules name stays out. */
const treeOf = async (
  sandbox: Sandbox,
  path: string,
  into: string,
  scratch: string,
  takeOut: TakeOut & CallOptions,
): Promise<string> => {
  await mkdir(into);
  await sandbox.files.downloadDirectory(path, into, takeOut);
  await removeRepositories(into);
  const options = own(scratch, into);
  const env = { ...options.env, GIT_INDEX_FILE: `${into}.index` };
  await git(['-c', 'core.autocrlf=false', 'add', '--all', '.'], { ...options, env });
  return git(['write-tree'], { env });
};

const removeRepositories = async (directory: string): Promise<void> => {
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.name.toLowerCase() === '.git') await rm(path, { recursive: true, force: true });
    else if (entry.isDirectory()) await removeRepositories(path);
  }
};
