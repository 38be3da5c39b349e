import { CoppiceError, type ExecResult } from '@coppice/protocol';
import { redact } from '../../redaction/redact.ts';
import { exitCodeOf } from './command-result.ts';
import { guestPath } from './fields.ts';
import type { ToolContext } from './tool-context.ts';

/**
 * Answers git with what set_env gave: GIT_TOKEN, or GIT_USERNAME and GIT_PASSWORD. It names variables only, so that it
 * may stand in the configuration of a clone while the secret itself is in no file, remote or snapshot.
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

/** Runs git in one repository of one sandbox, always as words and never through a shell. */
export class GuestGit {
  readonly #context: ToolContext;
  readonly #id: string;
  readonly path: string;

  constructor(context: ToolContext, id: string, path: string) {
    this.#context = context;
    this.#id = id;
    this.path = guestPath(path);
  }

  async try(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    return this.#run(['-C', this.path, ...args], options);
  }

  /** Without a repository yet. */
  async tryOutside(args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    return this.#run(args, options);
  }

  /** Standard output without the last line end; a failure is an error. */
  async run(args: readonly string[], options: GitOptions = {}): Promise<string> {
    const result = await this.try(args, options);
    if (result.exitCode !== 0) throw this.failure(args[0] ?? 'git', result);
    return result.stdout.replace(/\n$/, '');
  }

  failure(what: string, { stderr, stdout, exitCode }: GitResult): CoppiceError {
    const output = redact((stderr || stdout).trim());
    if (/not a git repository|cannot change to/i.test(output))
      return new CoppiceError('not_found', `${this.path} is not a git repository`, {
        hint: 'Give the directory of a repository as path, or make one with git_clone.',
      });
    const isAuthentication =
      /authentication failed|could not read (username|password)|terminal prompts disabled|permission denied/i;
    return new CoppiceError(
      'conflict',
      `git ${what} failed in ${this.path} (exit code ${exitCode}): ${output}`,
      {
        hint: isAuthentication.test(output)
          ? 'Give the token once with set_env, as GIT_TOKEN, then call again.'
          : /could not resolve host|unable to access/i.test(output)
            ? 'Allow the internet with network_policy, allow_internet: true, then call again.'
            : /already exists and is not an empty directory/i.test(output)
              ? 'Call git_clone with another path, one that is not there yet.'
              : 'Read what git says; workspace_git_status shows the state of the repository.',
      },
    );
  }

  async #run(args: readonly string[], options: GitOptions): Promise<GitResult> {
    const timeoutSecs = options.timeoutSecs ?? 120;
    const done = await this.#exec(args, options, timeoutSecs);
    if (done.timed_out)
      throw new CoppiceError('timeout', `git timed out after ${timeoutSecs} s in ${this.path}`, {
        hint: 'Raise timeout_secs, or run git with exec_background.',
      });
    return {
      exitCode: exitCodeOf(done),
      stdout: done.stdout,
      stderr: done.stderr,
      cut: done.stdout_cut_bytes > 0,
    };
  }

  async #exec(args: readonly string[], options: GitOptions, timeoutSecs: number): Promise<ExecResult> {
    this.#context.secrets.addEnvironment(options.env ?? {});
    const common = ['-c', 'safe.directory=*', '-c', `credential.helper=${credentialHelper}`];
    try {
      return await this.#context.call('exec', {
        params: { sandbox: this.#id },
        body: {
          command: ['git', ...common, ...args],
          env: { GIT_TERMINAL_PROMPT: '0', LC_ALL: 'C', ...options.env },
          timeout_ms: Math.ceil(timeoutSecs * 1000),
          max_output_bytes: options.maxOutputBytes ?? 4 * 1024 * 1024,
          ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
        },
      });
    } catch (error) {
      if (!(error instanceof CoppiceError) || error.code !== 'not_found' || !/\bgit\b/.test(error.message))
        throw error;
      throw new CoppiceError('not_found', 'there is no git in this workspace', {
        hint: 'Install it with exec (it needs network_policy with allow_internet: true), or use another base_image.',
        cause: error,
      });
    }
  }
}
