import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Somebody's own git, in a directory of its own, with no settings but the name. */
export class GitClient implements AsyncDisposable {
  readonly directory: string;

  private constructor(directory: string) {
    this.directory = directory;
  }

  static async make(): Promise<GitClient> {
    return new GitClient(await mkdtemp(join(tmpdir(), 'coppice-git-client-')));
  }

  async try(...args: readonly string[]): Promise<Outcome> {
    const env = {
      PATH: '/usr/bin:/bin',
      HOME: this.directory,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_TERMINAL_PROMPT: '0',
      GIT_AUTHOR_NAME: 'Ann',
      GIT_AUTHOR_EMAIL: 'ann@example.invalid',
      GIT_COMMITTER_NAME: 'Ann',
      GIT_COMMITTER_EMAIL: 'ann@example.invalid',
      LC_ALL: 'C',
    };
    try {
      const { stdout, stderr } = await run('git', args as string[], {
        cwd: this.directory,
        env,
        maxBuffer: 1 << 26,
      });
      return { code: 0, stdout, stderr };
    } catch (error) {
      const failed = error as { code?: unknown; stdout?: string; stderr?: string };
      if (typeof failed.code !== 'number') throw error;
      return { code: failed.code, stdout: failed.stdout ?? '', stderr: failed.stderr ?? '' };
    }
  }

  async ok(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await this.try(...args);
    if (code !== 0) throw new Error(`git ${args.join(' ')} ended with ${code}: ${stderr}`);
    return stdout.trim();
  }

  /** A repository with one commit on main. */
  async begin(): Promise<string> {
    await this.ok('init', '--quiet', '--initial-branch=main');
    return this.commit('README.md', 'hello\n');
  }

  async commit(file: string, content: string | Uint8Array): Promise<string> {
    await writeFile(join(this.directory, file), content);
    await this.ok('add', '-A');
    await this.ok('commit', '--quiet', '-m', `add ${file}`);
    return this.ok('rev-parse', 'HEAD');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** The address of a repository with a token in it. */
export const withToken = (url: string, token: string): string => url.replace('://', `://x:${token}@`);
