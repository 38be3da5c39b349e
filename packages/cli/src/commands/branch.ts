import { printableName } from '@coppice/console';
import type { Branch } from '@coppice/protocol';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface StartOptions {
  readonly title?: string;
  readonly type?: 'feature';
  readonly critical?: boolean;
  readonly base?: string;
  readonly image?: string;
  readonly task?: string;
  readonly agent?: string;
}

const branchText = (branch: Branch): string =>
  [
    `${printableName(branch.branch_name)}: ${branch.state}, ${branch.ahead_by} ahead of ${printableName(branch.base)}, ${branch.behind_by} behind`,
    ...(branch.sandbox_id === null ? [] : [`sandbox ${branch.sandbox_id}`]),
    ...(branch.run_id === null ? [] : [`run ${branch.run_id}`]),
    ...(branch.pr_number === null
      ? []
      : [`pull request #${branch.pr_number}, checks: ${branch.checks}, reviews: ${branch.reviews}`]),
    ...(branch.has_conflicts ? ['it is in conflict with its base'] : []),
    ...(branch.merge_sha === null ? [] : [`merged as ${branch.merge_sha}`]),
    ...(branch.error === null ? [] : [`last error: ${printableName(branch.error)}`]),
  ].join('\n');

export const define: DefineCommand = (program, cli) => {
  const branch = verb(program, 'branch', 'From a ticket to a merge: branch, agent, pull request');
  const { signal } = cli;
  const show = (found: Branch): void => cli.out.result(found, () => branchText(found));

  verb(branch, 'start', 'Create the branch of a ticket and a sandbox with it; safe to repeat')
    .argument('<repository>', 'name of the repository')
    .argument('<ticket>', 'number of the issue, or name of a ticket elsewhere')
    .argument('[command...]', 'start this program there, and finish the branch when it ends well')
    .option('--title <text>', 'of a ticket that the forge does not have')
    .addOption(
      new Option('--type <type>', 'what it is about, if not as the issue says').choices([
        'feature',
        'bug',
        'refactor',
        'docs',
        'test',
        'chore',
      ]),
    )
    .option('--critical', 'a bug that cannot wait')
    .option('--base <branch>', 'start from this branch (default: the default branch)')
    .option('--image <image>', 'of the sandbox')
    .option('--task <text>', 'start an agent there with this task')
    .option('--agent <name>', 'which agent')
    .addHelpText(
      'after',
      examples(
        'coppice branch start app 1',
        'coppice branch start app 1 --agent claude --task "Do what the issue says"',
        'coppice branch start app 1 -- sh -c "echo dark > theme.txt"',
      ),
    )
    .action(async (repository: string, ticket: string, command: string[], options: StartOptions) => {
      const { task, agent, ...rest } = options;
      if (agent !== undefined && task === undefined)
        throw new CoppiceError('invalid_argument', 'an agent needs a task', { hint: 'Add --task "…"' });
      const run =
        command.length > 0
          ? { task: task ?? command.join(' '), command, ...(agent === undefined ? {} : { agent }) }
          : task === undefined
            ? undefined
            : { task, ...(agent === undefined ? {} : { agent }) };
      show(
        await cli.out.during('starting', () =>
          cli.coppice.branches.start(
            { repository, ticket, ...rest, ...(run === undefined ? {} : { run }) },
            { signal },
          ),
        ),
      );
    });

  const named = (name: string, summary: string) =>
    verb(branch, name, summary)
      .argument('<repository>', 'name of the repository')
      .argument('<branch>', 'name of the branch, or its ticket');

  named('finish', 'Bring the commits of the sandbox to the forge and open a pull request; can be repeated')
    .option('-m, --message <text>', 'of the commit for what is not committed yet')
    .action(async (repository: string, name: string, { message }: { readonly message?: string }) =>
      show(
        await cli.out.during('finishing', () =>
          cli.coppice.branches.finish(
            { repository, branch: name, ...(message === undefined ? {} : { message }) },
            { signal },
          ),
        ),
      ),
    );

  named('merge', 'Merge its pull request, then remove branch and sandbox; conflicts are never forced')
    .addOption(
      new Option('--method <method>', 'how').choices(['squash', 'merge', 'rebase']).default('squash'),
    )
    .option('--head <sha>', 'only if its head is this commit (default: what finish brought there)')
    .option('--keep-sandbox', 'leave the sandbox where it is')
    .action(
      async (
        repository: string,
        name: string,
        options: {
          readonly method: 'squash' | 'merge' | 'rebase';
          readonly head?: string;
          readonly keepSandbox?: boolean;
        },
      ) => {
        const merged = await cli.out.during('merging', () =>
          cli.coppice.branches.merge(
            {
              repository,
              branch: name,
              method: options.method,
              keep_sandbox: options.keepSandbox ?? false,
              ...(options.head === undefined ? {} : { expected_head: options.head }),
            },
            { signal },
          ),
        );
        show(merged);
        if (!merged.success) cli.exitCode = errorKinds.conflict.exitCode;
      },
    );

  named('status', 'Show where a branch stands').action(async (repository: string, name: string) =>
    show(await cli.coppice.branches.status({ repository, branch: name }, { signal })),
  );

  verb(branch, 'ls', 'List branches of tickets')
    .argument('[repository]', 'only of this one')
    .action(async (repository?: string) => {
      const found = await cli.coppice.branches.list({
        signal,
        ...(repository === undefined ? {} : { repository }),
      });
      const rows = found.map((each) => [
        each.repository,
        each.ticket,
        printableName(each.branch_name),
        each.state,
        each.pr_number === null ? '-' : `#${each.pr_number}`,
      ]);
      cli.out.result(found, () =>
        cli.out.table(['REPOSITORY', 'TICKET', 'BRANCH', 'STATE', 'PR'], rows, 'No branches.'),
      );
    });
};
