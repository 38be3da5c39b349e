import { dirname } from 'node:path/posix';
import { execSchema } from '@coppice/protocol';
import type { Guest } from '@coppice/runtime';
import type { SandboxRecord } from '../../db/sandbox-table.ts';
import {
  type GitOptions,
  GitRepository,
  type GitResult,
  type RunInSandbox,
} from '../../git/git-repository.ts';
import { ExecService } from '../../inside/exec-service.ts';
import { LimitWatch } from '../../inside/limit-watch.ts';
import type { Bench } from '../../sandboxes/bench.ts';

/** Nothing that the repository itself says is run, and nothing is tidied up behind the back of the merge. */
const quiet = ['core.hooksPath=/dev/null', 'core.fsmonitor=false', 'gc.auto=0', 'maintenance.auto=false']
  .concat(['commit.gpgSign=false', 'rerere.enabled=false', 'core.quotePath=false'])
  .flatMap((setting) => ['-c', setting]);

const patient = { timeoutSecs: 600, maxOutputBytes: 64 * 1024 ** 2 };
const isIdentity = (name: string): boolean =>
  /^(?:GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL)|EMAIL)$/.test(name);

export interface Ref {
  readonly name: string;
  readonly sha: string;
}

export interface Stash {
  readonly sha: string;
  readonly message: string;
}

/** Runs git in one repository of a bench, as the owner of that repository. */
export class BenchGit extends GitRepository {
  readonly gitDir: string;
  readonly #guest: Guest;
  readonly #run: RunInSandbox;

  private constructor(guest: Guest, run: RunInSandbox, gitDir: string, path = dirname(gitDir)) {
    super(run, path);
    this.#guest = guest;
    this.#run = run;
    this.gitDir = gitDir;
  }

  static async open(bench: Bench, of: SandboxRecord, gitDir: string, signal: AbortSignal): Promise<BenchGit> {
    const guest = bench.machine.guest.until(signal);
    const { uid, gid } = await guest.stat(gitDir);
    const lease = {
      sandboxId: bench.id,
      name: of.name,
      env: Object.fromEntries(Object.entries(of.env).filter(([name]) => isIdentity(name))),
      user: `${uid}:${gid}`,
      guest,
      watchLimits: () => new LimitWatch(bench.machine),
      touch: () => {},
      release: () => {},
    };
    const exec = new ExecService({ acquire: async () => lease });
    return new BenchGit(guest, (command) => exec.run(bench.id, execSchema.parse(command), signal), gitDir);
  }

  override try(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    return super.try([...quiet, ...args], { ...patient, ...options });
  }

  async succeeds(...args: string[]): Promise<boolean> {
    return (await this.try(args)).exitCode === 0;
  }

  /** Undefined where there is no such commit. */
  async commit(name: string): Promise<string | undefined> {
    const { exitCode, stdout } = await this.try(['rev-parse', '--verify', '--quiet', `${name}^{commit}`]);
    return exitCode === 0 ? stdout.trim() : undefined;
  }

  /** All but those that only stand for another. */
  async refs(): Promise<Ref[]> {
    const text = await this.run(['for-each-ref', '--format=%(objectname) %(refname) %(symref)']);
    return lines(text).flatMap((line) => {
      const [sha = '', name = '', target = ''] = line.split(' ');
      return target === '' ? [{ name, sha }] : [];
    });
  }

  /** The newest first. */
  async stashes(): Promise<Stash[]> {
    const { exitCode, stdout } = await this.try(['log', '-g', '--format=%H %gs', 'refs/stash', '--']);
    if (exitCode !== 0) return [];
    return lines(stdout).map((line) => {
      const space = line.indexOf(' ');
      return { sha: line.slice(0, space), message: line.slice(space + 1) };
    });
  }

  /** Paths of the repository that git knows; absolute, as seen inside. */
  async tracked(): Promise<string[]> {
    return records(await this.run(['ls-files', '-z'])).map((path) => this.absolute(path));
  }

  absolute(path: string): string {
    return `${this.path === '/' ? '' : this.path}/${path}`;
  }

  isAncestor(older: string, newer: string): Promise<boolean> {
    return this.succeeds('merge-base', '--is-ancestor', older, newer);
  }

  /** The same repository, with another directory checked out beside it. */
  beside(path: string): BenchGit {
    return new BenchGit(this.#guest, this.#run, this.gitDir, path);
  }

  read(path: string): AsyncIterable<Buffer> {
    return this.#guest.read(path);
  }

  async write(path: string, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    await this.#guest.write(path, bytes, { mode: 0o644 });
  }

  /** Files at the top of the repository. */
  async discard(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#guest.remove(this.absolute(name));
  }
}

export const lines = (text: string): string[] => text.split('\n').filter((line) => line !== '');
export const records = (text: string): string[] => text.split('\0').filter((record) => record !== '');
