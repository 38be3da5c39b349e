import { isAbsolute, posix } from 'node:path';
import { CoppiceError, type ExecResult, type execSchema, workDirectory } from '@coppice/protocol';
import type { z } from 'zod';
import { redact } from '../redaction/redact.ts';

/**
 * Answers git with what the environment of the sandbox has: GIT_TOKEN, or GIT_USERNAME and GIT_PASSWORD. It names variables only,
 * so that it may stand in the configuration of a clone while the secret itself is in no file, remote or snapshot.
 */
export const credentialHelper = `!f() { test "$1" = get || exit 0; test -n "$GIT_PASSWORD$GIT_TOKEN" || exit 0; echo "username=\${GIT_USERNAME:-x-access-token}"; echo "password=\${GIT_PASSWORD:-$GIT_TOKEN}"; }; f`;

export interface GitOptions {
  readonly timeoutSecs?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly maxOutputBytes?: number;
}

export interface GitResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  /** There was more of stdout than was kept. */
  readonly cut: boolean;
}

/** Why git failed, where its words tell. An error has it as `details.trouble`. */
type GitTrouble = 'no_repository' | 'login' | 'network' | 'exists' | 'other';

/** Runs a command in the sandbox of a repository. */
export type RunInSandbox = (command: z.input<typeof execSchema>) => Promise<ExecResult>;

const hints: Readonly<Record<GitTrouble, string>> = {
  no_repository: 'Give the directory of a repository as path.',
  login: 'Give the sandbox a token for the remote as the variable GIT_TOKEN, then call again.',
  network: 'Allow the sandbox to reach the remote, then call again.',
  exists: 'Give a path that is not there yet.',
  other: 'Read what git says, settle it in the sandbox, then call again.',
};

/** Who commits where nobody else is configured. */
export const agent = { name: 'Coppice agent', email: 'agent@coppice.invalid' } as const;

const outputBytes = 4 * 1024 * 1024;

/** Runs git in one repository of one sandbox, always as words and never through a shell. */
export class GitRepository {
  readonly #run: RunInSandbox;
  readonly path: string;

  constructor(run: RunInSandbox, path: string) {
    this.#run = run;
    this.path = isAbsolute(path) ? path : posix.normalize(posix.join(workDirectory, path));
  }

  async try(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    return this.tryOutside(['-C', this.path, ...args], options);
  }

  /** Without a repository yet. */
  async tryOutside(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    const timeoutSecs = options.timeoutSecs ?? 120;
    const done = await this.#exec(args, options, timeoutSecs);
    if (done.timed_out)
      throw new CoppiceError('timeout', `git timed out after ${timeoutSecs} s in ${this.path}`, {
        hint: 'Allow it more time, or run git as a background job.',
      });
    return {
      exitCode: done.exit_code ?? 128 + (done.signal ?? 0),
      stdout: done.stdout,
      stderr: done.stderr,
      cut: done.stdout_cut_bytes > 0,
    };
  }

  /** Standard output without the last line end; a failure is an error. */
  async run(args: readonly string[], options: GitOptions = {}): Promise<string> {
    const result = await this.try(args, options);
    if (result.exitCode !== 0) throw this.failure(args[0] ?? 'git', result);
    if (result.cut)
      throw new CoppiceError('too_large', `git ${args[0]} says more in ${this.path} than is read at once`, {
        hint: 'Commit what is there, or add it to .gitignore.',
      });
    return result.stdout.replace(/\n$/, '');
  }

  failure(what: string, { stderr, stdout, exitCode }: GitResult): CoppiceError {
    const output = redact((stderr || stdout).trim());
    const trouble = troubleIn(output);
    if (trouble === 'no_repository')
      return new CoppiceError('not_found', `${this.path} is not a git repository`, {
        hint: hints[trouble],
        details: { trouble },
      });
    return new CoppiceError(
      'conflict',
      `git ${what} failed in ${this.path} (exit code ${exitCode}): ${output}`,
      { hint: hints[trouble], details: { trouble } },
    );
  }

  /** Undefined where HEAD is on no branch. */
  async branch(): Promise<string | undefined> {
    const { exitCode, stdout } = await this.try(['symbolic-ref', '--short', '--quiet', 'HEAD']);
    return exitCode === 0 ? stdout.trim() : undefined;
  }

  /** Commits need an author; one that is configured is left alone. */
  async ensureAuthor(): Promise<void> {
    const email = await this.try(['config', 'user.email']);
    if (email.exitCode === 0) return;
    await this.run(['config', 'user.name', agent.name]);
    await this.run(['config', 'user.email', agent.email]);
  }

  async #exec(args: readonly string[], options: GitOptions, timeoutSecs: number): Promise<ExecResult> {
    const common = ['-c', 'safe.directory=*', '-c', `credential.helper=${credentialHelper}`];
    try {
      return await this.#run({
        command: ['git', ...common, ...args],
        env: { GIT_TERMINAL_PROMPT: '0', LC_ALL: 'C', ...options.env },
        timeout_ms: Math.ceil(timeoutSecs * 1000),
        max_output_bytes: options.maxOutputBytes ?? outputBytes,
        ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
      });
    } catch (error) {
      if (!(error instanceof CoppiceError) || error.code !== 'not_found' || !/\bgit\b/.test(error.message))
        throw error;
      throw new CoppiceError('not_found', 'there is no git in this sandbox', {
        hint: 'Install it there (that needs the network), or use an image that has it.',
        cause: error,
      });
    }
  }
}

function troubleIn(output: string): GitTrouble {
  if (/not a git repository|cannot change to/i.test(output)) return 'no_repository';
  if (
    /authentication failed|could not read (username|password)|terminal prompts disabled|permission denied/i.test(
      output,
    )
  )
    return 'login';
  if (/could not resolve host|unable to access/i.test(output)) return 'network';
  if (/already exists and is not an empty directory/i.test(output)) return 'exists';
  return 'other';
}
