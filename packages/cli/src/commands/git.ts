import { plural, printableName } from '@coppice/console';
import type { GitStatus, MergedCommits } from '@coppice/protocol';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { type DefineCommand, examples, verb } from '../verb.ts';

type Strategy = MergedCommits['strategy'];
const strategies: Strategy[] = ['sequential', 'branch-per-source', 'cherry-pick'];

interface MergeOptions {
  readonly strategy: Strategy;
  readonly message?: string;
  readonly path?: string;
}

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
  const git = verb(program, 'git', 'Look at repositories in sandboxes, and merge commits of forks');

  verb(git, 'status', 'Show the branch, and what has changed since the last commit')
    .argument('<sandbox>', 'name or id')
    .option('--path <dir>', 'directory of the repository (default: /workspace)')
    .action(async (ref: string, { path }: { readonly path?: string }) => {
      const status = await cli.coppice.sandboxes
        .at(ref)
        .git.status({ ...(path === undefined ? {} : { path }), signal: cli.signal });
      cli.out.result(status, () => statusText(status));
    });

  verb(git, 'merge', 'Bring commits of forks into a sandbox; can be repeated, in both directions')
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
