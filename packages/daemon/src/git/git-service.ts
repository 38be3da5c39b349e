import {
  CoppiceError,
  execSchema,
  type GitCloned,
  type GitCommitted,
  type GitDiff,
  type GitPushed,
  type GitStatus,
  type gitCloneSchema,
  type gitCommitSchema,
  type gitDiffQuery,
  type gitPushSchema,
  type gitStatusQuery,
  type MergedCommits,
  type mergeCommitsSchema,
  type Sandbox,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { ExecService } from '../inside/exec-service.ts';
import type { FileService } from '../inside/file-service.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import { redact } from '../redaction/redact.ts';
import { Secrets } from '../redaction/secrets.ts';
import type { CallOptions } from '../services.ts';
import { splitCredentials } from './git-credentials.ts';
import { GitMerge, type MergePlace } from './git-merge.ts';
import { credentialHelper, GitRepository } from './git-repository.ts';
import { parseStatus, statusArguments } from './git-status.ts';

export interface GitServiceParts {
  readonly exec: ExecService;
  readonly files: FileService;
  readonly peek: (ref: string) => Sandbox;
}

/** Repositories inside sandboxes: clone, status, diff, commit, push, and merges from one sandbox into another. */
export class GitService {
  readonly #parts: GitServiceParts;
  /** One merge into a sandbox at a time. */
  readonly #merging = new KeyedLock();

  constructor(parts: GitServiceParts) {
    this.#parts = parts;
  }

  async status(
    ref: string,
    { path }: z.output<typeof gitStatusQuery>,
    { signal }: CallOptions = {},
  ): Promise<GitStatus> {
    return parseStatus(await this.#repository(ref, path, signal).run(statusArguments));
  }

  async diff(
    ref: string,
    { path, staged, stat: onlyStat, file, max_bytes: maxOutputBytes }: z.output<typeof gitDiffQuery>,
    { signal }: CallOptions = {},
  ): Promise<GitDiff> {
    const git = this.#repository(ref, path, signal);
    const common = ['diff', '--no-color', '--no-ext-diff', '--no-textconv', ...(staged ? ['--cached'] : [])];
    const files = file === undefined ? [] : ['--', relativeTo(git.path, file)];
    const stat = await git.run([...common, '--stat', ...files]);
    if (onlyStat) return { diff: '', truncated: false, stat };
    const shown = await git.try([...common, ...files], { maxOutputBytes });
    if (shown.exitCode !== 0) throw git.failure('diff', shown);
    return { diff: shown.stdout, truncated: shown.cut, stat };
  }

  async clone(
    ref: string,
    { url: given, path, branch, depth, timeout_ms: timeoutMs }: z.output<typeof gitCloneSchema>,
    { signal }: CallOptions = {},
  ): Promise<GitCloned> {
    return withoutCredentials(given, async (url, env) => {
      const git = this.#repository(ref, path, signal);
      const args = [
        'clone',
        ...(branch === undefined ? [] : ['--branch', branch]),
        ...(depth === undefined ? [] : ['--depth', String(depth)]),
        '--',
        url,
        git.path,
      ];
      const cloned = await git.tryOutside(args, { timeoutSecs: timeoutMs / 1000, env });
      if (cloned.exitCode !== 0) throw git.failure('clone', cloned);
      // Plain `git push` and `git commit` work in the clone too; the helper names variables and holds no secret.
      await git.run(['config', '--add', 'credential.helper', credentialHelper]);
      await git.ensureAuthor();
      const head = await git.try(['rev-parse', '--verify', '--quiet', 'HEAD']);
      return {
        path: git.path,
        commit_sha: head.exitCode === 0 ? head.stdout.trim() : null,
        url: redact(url),
        branch: (await git.branch()) ?? null,
      };
    });
  }

  async commit(
    ref: string,
    { path, message, all, author_name: name, author_email: email }: z.output<typeof gitCommitSchema>,
    { signal }: CallOptions = {},
  ): Promise<GitCommitted> {
    const git = this.#repository(ref, path, signal);
    if (all) await git.run(['add', '--all']);
    const staged = await git.try(['diff', '--cached', '--quiet']);
    if (staged.exitCode === 0) return { path: git.path, commit: null };
    if (staged.exitCode !== 1) throw git.failure('diff', staged);
    await git.ensureAuthor();
    await git.run(['commit', '--quiet', '--file=-'], { stdin: message, env: authorEnv(name, email) });
    const [sha = '', short = '', summary = ''] = (await git.run(['log', '-1', '--format=%H%n%h%n%s'])).split(
      '\n',
    );
    const branch = (await git.branch()) ?? null;
    return { path: git.path, commit: { sha, short_sha: short, branch, summary } };
  }

  async push(
    ref: string,
    {
      path,
      remote,
      branch: wanted,
      force,
      set_upstream: upstream,
      timeout_ms: timeoutMs,
    }: z.output<typeof gitPushSchema>,
    { signal }: CallOptions = {},
  ): Promise<GitPushed> {
    return withoutCredentials(remote, async (url, env) => {
      const git = this.#repository(ref, path, signal);
      const branch = wanted ?? (await git.branch());
      if (branch === undefined)
        throw new CoppiceError('wrong_state', `${git.path} is on no branch`, {
          hint: 'Name the branch to push, or make one there with `git switch -c NAME`.',
        });
      const flags = [...(force ? ['--force'] : []), ...(upstream ? ['--set-upstream'] : [])];
      const options = { timeoutSecs: timeoutMs / 1000, env };
      const pushed = await git.try(['push', ...flags, '--', url, branch], options);
      if (pushed.exitCode !== 0) throw git.failure('push', pushed);
      return { remote: redact(url), branch, output: redact(`${pushed.stdout}${pushed.stderr}`.trim()) };
    });
  }

  /** Conflicts are an answer; they leave the target as it was, or without the commits that are named. */
  async merge(
    into: string,
    { from, strategy, message, path }: z.output<typeof mergeCommitsSchema>,
    { signal, progress }: CallOptions = {},
  ): Promise<MergedCommits> {
    const target = this.#place(into, path, signal);
    const sources = from.map((ref) => this.#place(ref, path, signal));
    return this.#merging.exclusive(target.id, async () => {
      const merge = new GitMerge(target);
      await merge.assertReady();
      const merged: MergedCommits['sources'] = [];
      const conflicts: MergedCommits['conflicts'] = [];
      for (const [index, source] of sources.entries()) {
        signal?.throwIfAborted();
        progress?.({ message: `merging ${source.name}`, fraction: index / sources.length });
        const outcome = await merge.bringIn(source, strategy, message);
        if (outcome.merged !== undefined) merged.push(outcome.merged);
        conflicts.push(...outcome.conflicts);
      }
      return {
        success: conflicts.length === 0,
        strategy,
        commits: merged.reduce((sum, source) => sum + source.commits, 0),
        sources: merged,
        conflicts,
      };
    });
  }

  #repository(ref: string, path: string, signal: AbortSignal | undefined): GitRepository {
    const { exec } = this.#parts;
    return new GitRepository((command) => exec.run(ref, execSchema.parse(command), signal), path);
  }

  #place(ref: string, path: string, signal: AbortSignal | undefined): MergePlace {
    const { files, peek } = this.#parts;
    const { id, name } = peek(ref);
    return {
      id,
      name,
      git: this.#repository(id, path, signal),
      read: async (file) => (await files.read(id, file, {})).bytes,
      write: (file, bytes) => files.write(id, { path: file, parents: false }, bytes),
      remove: (file) => files.remove(id, file, false),
    };
  }
}

const relativeTo = (repository: string, path: string): string =>
  path.startsWith(`${repository}/`) ? path.slice(repository.length + 1) : path;

const authorEnv = (name: string | undefined, email: string | undefined): Record<string, string> => ({
  ...(name === undefined ? {} : { GIT_AUTHOR_NAME: name, GIT_COMMITTER_NAME: name }),
  ...(email === undefined ? {} : { GIT_AUTHOR_EMAIL: email, GIT_COMMITTER_EMAIL: email }),
});

/** Git is told the user and the password of a URL by its environment, and nobody else: no answer and no error has them. */
const withoutCredentials = async <T>(
  given: string,
  work: (url: string, env: Readonly<Record<string, string>>) => Promise<T>,
): Promise<T> => {
  const { url, env, secrets: values } = splitCredentials(given);
  const secrets = new Secrets();
  for (const value of values) secrets.add(value);
  try {
    return secrets.redactAll(await work(url, env));
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    throw new CoppiceError(error.code, secrets.redact(error.message), {
      hint: error.hint,
      ...(error.details === undefined ? {} : { details: secrets.redactAll(error.details) }),
      cause: error.cause,
    });
  }
};
