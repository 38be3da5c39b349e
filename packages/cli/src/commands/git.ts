import { plural, printable, printableName } from '@coppice/console';
import type { GitStatus, MergedCommits } from '@coppice/protocol';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { parseDurationMs } from '../args/duration.ts';
import { parseWhole } from '../args/number.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

type Strategy = MergedCommits['strategy'];
const strategies: Strategy[] = ['sequential', 'branch-per-source', 'cherry-pick'];

interface MergeOptions {
  readonly strategy: Strategy;
  readonly message?: string;
  readonly path?: string;
}

interface DiffOptions {
  readonly staged?: boolean;
  readonly stat?: boolean;
  readonly path?: string;
}

interface CloneOptions {
  readonly path?: string;
  readonly branch?: string;
  readonly depth?: number;
  readonly timeout?: number;
}

interface CommitOptions {
  readonly message: string;
  readonly staged?: boolean;
  readonly authorName?: string;
  readonly authorEmail?: string;
  readonly path?: string;
}

interface PushOptions {
  readonly remote?: string;
  readonly force?: boolean;
  readonly setUpstream?: boolean;
  readonly timeout?: number;
  readonly path?: string;
}

/** As much as the daemon gives at once. */
const mostDiffBytes = 4_194_304;

const timed = (timeoutMs: number | undefined) => (timeoutMs === undefined ? {} : { timeout_ms: timeoutMs });

const statusText = (status: GitStatus): string => {
  const { branch, ahead, behind, staged, modified, untracked, conflicted, dirty } = status;
  const apart = ahead + behind === 0 ? '' : `, ${ahead} ahead and ${behind} behind its upstream`;
  const marked = (mark: string, paths: readonly string[]): string[] =>
    paths.map((path) => `${mark}  ${printableName(path)}`);
  return [
    `${branch === null ? 'on no branch' : `on ${printableName(branch)}`}${apart}${dirty ? '' : ', nothing to commit'}`,
    ...marked('conflict ', conflicted),
    ...marked('staged   ', staged),
    ...marked('modified ', modified),
    ...marked('untracked', untracked),
  ].join('\n');
};

const mergedText = ({ sources, conflicts, commits }: MergedCommits, into: string): string =>
  [
    ...sources.map(({ name, commits: count, uncommitted_changes: more }) => {
      const rest = more ? ' (it has changes that are not committed; they stay there)' : '';
      return `${name}: ${count === 0 ? 'nothing new' : plural(count, 'commit')}${rest}`;
    }),
    ...conflicts.map(({ sandbox_id: id, error }) => `${id}: left out, ${printableName(error)}`),
    `${plural(commits, 'commit')} went into ${into}`,
  ].join('\n');

export const define: DefineCommand = (program, cli) => {
  const git = verb(program, 'git', 'Work with git repositories in sandboxes, and merge commits of forks');

  verb(git, 'status', 'Show the branch, and what has changed since the last commit')
    .argument('<sandbox>', 'name or id')
    .option('--path <dir>', 'directory of the repository (default: /workspace)')
    .action(async (ref: string, { path }: { readonly path?: string }) => {
      const status = await cli.coppice.sandboxes
        .at(ref)
        .git.status({ ...(path === undefined ? {} : { path }), signal: cli.signal });
      cli.out.result(status, () => statusText(status));
    });

  verb(git, 'diff', 'Show uncommitted changes')
    .argument('<sandbox>', 'name or id')
    .argument('[file]', 'only this file, relative to the repository')
    .option('--staged', 'what is staged instead')
    .option('--stat', 'only how much has changed in each file')
    .option('--path <dir>', 'directory of the repository (default: /workspace)')
    .action(async (ref: string, file: string | undefined, options: DiffOptions) => {
      const shown = await cli.coppice.sandboxes.at(ref).git.diff({
        ...options,
        maxBytes: mostDiffBytes,
        ...(file === undefined ? {} : { file }),
        signal: cli.signal,
      });
      const text = options.stat === true ? shown.stat : shown.diff;
      // For other programs as it is; on a terminal the file could otherwise hide its own lines.
      cli.out.result(shown, () => (cli.io.stdout.isTTY ? printable(text) : text).trimEnd());
      if (shown.truncated) cli.out.note(`cut after ${mostDiffBytes} bytes: name one file to see less`);
    });

  verb(git, 'clone', 'Clone a repository into a sandbox')
    .argument('<sandbox>', 'name or id')
    .argument('<url>', 'where from; a password in it is used once and stored nowhere')
    .option('--path <dir>', 'directory to clone into (default: /workspace)')
    .option('--branch <name>', 'branch to check out')
    .option('--depth <n>', 'only that many of the newest commits', parseWhole)
    .option('--timeout <time>', 'give up after this long (default: 5m)', parseDurationMs)
    .addHelpText('after', examples('coppice git clone dev https://github.com/user/repository'))
    .action(async (ref: string, url: string, { timeout, ...options }: CloneOptions) => {
      const cloned = await cli.out.during('cloning', () =>
        cli.coppice.sandboxes.at(ref).git.clone(url, { ...options, ...timed(timeout), signal: cli.signal }),
      );
      const at = cloned.commit_sha === null ? 'which is empty' : `at ${cloned.commit_sha.slice(0, 10)}`;
      cli.out.result(cloned, () => `cloned ${printableName(cloned.url)} into ${cloned.path}, ${at}`);
    });

  verb(git, 'commit', 'Commit changes in a repository')
    .argument('<sandbox>', 'name or id')
    .requiredOption('-m, --message <text>', 'message of the commit')
    .option('--staged', 'only what is staged (default: every change)')
    .option('--author-name <name>', 'author and committer')
    .option('--author-email <address>', 'their address')
    .option('--path <dir>', 'directory of the repository (default: /workspace)')
    .action(async (ref: string, { message, staged, authorName, authorEmail, path }: CommitOptions) => {
      const made = await cli.coppice.sandboxes.at(ref).git.commit(message, {
        all: staged !== true,
        ...(authorName === undefined ? {} : { author_name: authorName }),
        ...(authorEmail === undefined ? {} : { author_email: authorEmail }),
        ...(path === undefined ? {} : { path }),
        signal: cli.signal,
      });
      cli.out.result(made, () =>
        made.commit === null
          ? 'nothing to commit'
          : `${made.commit.short_sha} ${printableName(made.commit.summary)}`,
      );
    });

  verb(git, 'push', 'Push a branch to a remote')
    .argument('<sandbox>', 'name or id')
    .argument('[branch]', 'the current one by default')
    .option('--remote <name-or-url>', 'where to (default: origin)')
    .option('--force', 'replace what the remote has, commits of others included')
    .option('--set-upstream', 'make it the upstream of the branch')
    .option('--timeout <time>', 'give up after this long (default: 2m)', parseDurationMs)
    .option('--path <dir>', 'directory of the repository (default: /workspace)')
    .action(async (ref: string, branch: string | undefined, options: PushOptions) => {
      const { timeout, setUpstream, ...rest } = options;
      const pushed = await cli.out.during('pushing', () =>
        cli.coppice.sandboxes.at(ref).git.push({
          ...rest,
          ...(branch === undefined ? {} : { branch }),
          ...(setUpstream === undefined ? {} : { set_upstream: setUpstream }),
          ...timed(timeout),
          signal: cli.signal,
        }),
      );
      cli.out.result(pushed, () => `pushed ${pushed.branch} to ${printableName(pushed.remote)}`);
    });

  verb(git, 'merge', 'Merge commits of forks into a sandbox; safe to repeat, in both directions')
    .argument('<sandboxes...>', 'the forks, then the sandbox that gets their commits')
    .addOption(
      new Option('--strategy <strategy>', 'how commits are brought in')
        .choices(strategies)
        .default('sequential'),
    )
    .option('-m, --message <text>', 'message of merge commits (branch-per-source)')
    .option('--path <dir>', 'directory of the repository, the same in all (default: /workspace)')
    .addHelpText('after', examples('coppice git merge try-1 try-2 dev', 'coppice git merge dev try-1'))
    .action(async (refs: string[], { strategy, message, path }: MergeOptions) => {
      const from = refs.slice(0, -1);
      const into = refs.at(-1)!;
      if (from.length === 0)
        throw new CoppiceError(
          'invalid_argument',
          'a merge needs a fork and the sandbox that gets its commits',
          {
            hint: `For example: coppice git merge FORK ${into}`,
          },
        );
      const merged = await cli.out.during('merging', () =>
        cli.coppice.sandboxes.at(into).git.merge(from, {
          strategy,
          ...(message === undefined ? {} : { message }),
          ...(path === undefined ? {} : { path }),
          signal: cli.signal,
        }),
      );
      cli.out.result(merged, () => mergedText(merged, into));
      if (!merged.success) cli.exitCode = errorKinds.conflict.exitCode;
    });
};
