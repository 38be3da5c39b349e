import { printableName } from '@coppice/console';
import type { Pull } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { parseWhole } from '../args/number.ts';
import { readSecret } from '../read-password.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const pullRow = ({ number, state, head, base, title, mergeable }: Pull): string[] => [
  `#${number}`,
  state === 'open' && mergeable === false ? 'conflicts' : state,
  printableName(`${head} → ${base}`),
  printableName(title),
];

const pullText = (pull: Pull): string =>
  [
    `#${pull.number} ${printableName(pull.title)}`,
    `${pull.state}, ${printableName(pull.head)} (${pull.head_sha.slice(0, 10)}) → ${printableName(pull.base)}`,
    ...(pull.state === 'open' ? [pull.mergeable ? 'it merges' : 'it has conflicts with its base'] : []),
    ...(pull.merge_sha === null ? [] : [`merged as ${pull.merge_sha}`]),
    pull.url,
  ].join('\n');

export const define: DefineCommand = (program, cli) => {
  const forge = verb(program, 'forge', 'Repositories, issues and pull requests on this machine or elsewhere');
  const at = (name: string) => cli.coppice.repositories.at(name);
  const { signal } = cli;

  verb(forge, 'init', 'Create a repository on this machine')
    .argument('<name>', 'what it is called')
    .option('--default-branch <branch>', 'its main branch', 'main')
    .addHelpText('after', examples('coppice forge init app', 'git push $(coppice forge clone-url app) main'))
    .action(async (name: string, { defaultBranch }: { readonly defaultBranch: string }) => {
      const made = await cli.coppice.repositories.create({ name, default_branch: defaultBranch }, { signal });
      cli.out.result(made, () => made.clone_url);
    });

  verb(
    forge,
    'add',
    'Register a repository of GitHub, GitLab, Gitea or Forgejo; the token is read from standard input',
  )
    .argument('<name>', 'what it is called here')
    .argument('<repository>', 'owner/name there')
    .addOption(
      new Option('--kind <kind>', 'which forge it is')
        .choices(['github', 'gitlab', 'gitea'])
        .makeOptionMandatory(),
    )
    .option('--url <url>', 'where the forge is, if not at the vendor')
    .addHelpText(
      'after',
      examples(
        'coppice forge add app acme/app --kind github < token',
        'coppice forge add app acme/app --kind gitea --url https://git.example.org < token',
      ),
    )
    .action(
      async (
        name: string,
        remote: string,
        { kind, url }: { readonly kind: 'github' | 'gitlab' | 'gitea'; readonly url?: string },
      ) => {
        const token = await readSecret(cli, `the token for ${kind}`);
        const input = { name, kind, remote, token, ...(url === undefined ? {} : { url }) };
        const made = await cli.coppice.repositories.create(input, { signal });
        cli.out.result(made, () => made.clone_url);
      },
    );

  verb(forge, 'ls', 'List repositories').action(async () => {
    const found = await cli.coppice.repositories.list({ signal });
    const rows = found.map(({ name, kind, default_branch, clone_url }) => [
      name,
      kind,
      default_branch,
      clone_url,
    ]);
    cli.out.result(found, () =>
      cli.out.table(['NAME', 'KIND', 'BRANCH', 'CLONE URL'], rows, 'No repositories.'),
    );
  });

  verb(forge, 'rm', 'Remove a repository and everything in it')
    .argument('<name>')
    .action(async (name: string) => {
      await at(name).remove({ signal });
      cli.out.result({ removed: name }, () => `removed ${name}`);
    });

  verb(forge, 'clone-url', 'Print the URL for `git clone`; the password is a token')
    .argument('<name>')
    .action(async (name: string) => {
      const { clone_url } = await at(name).info({ signal });
      cli.out.result({ clone_url }, () => clone_url);
    });

  verb(forge, 'doctor', 'Test a forge with a scratch branch and a draft pull request, then clean up')
    .argument('<name>')
    .action(async (name: string) => {
      const result = await cli.out.during('trying the forge', () => at(name).doctor({ signal }));
      cli.out.result(result, () =>
        result.steps
          .map(
            ({ step, ok, detail }) =>
              `${ok ? 'ok    ' : 'FAILED'}  ${step}${ok || detail === '' ? '' : `: ${printableName(detail)}`}`,
          )
          .join('\n'),
      );
      if (!result.ok) cli.exitCode = 1;
    });

  const issue = verb(forge, 'issue', 'Issues of a repository');
  verb(issue, 'create', 'Open an issue')
    .argument('<name>', 'the repository')
    .argument('<title>')
    .option('--body <text>', 'more about it', '')
    .addOption(
      new Option('--type <type>', 'what it is about')
        .choices(['feature', 'bug', 'refactor', 'docs', 'test', 'chore'])
        .default('feature'),
    )
    .option('--critical', 'a bug that cannot wait')
    .action(
      async (
        name: string,
        title: string,
        options: { readonly body: string; readonly type: 'feature'; readonly critical?: boolean },
      ) => {
        const made = await at(name).createIssue(
          { title, body: options.body, type: options.type, critical: options.critical ?? false },
          { signal },
        );
        cli.out.result(made, () => `#${made.id}`);
      },
    );
  verb(issue, 'ls', 'List issues')
    .argument('<name>', 'the repository')
    .action(async (name: string) => {
      const found = await at(name).issues({ signal });
      const rows = found.map(({ id, state, type, title }) => [`#${id}`, state, type, printableName(title)]);
      cli.out.result(found, () => cli.out.table(['ISSUE', 'STATE', 'TYPE', 'TITLE'], rows, 'No issues.'));
    });

  const pr = verb(forge, 'pr', 'Pull requests of a repository');
  verb(pr, 'ls', 'List pull requests')
    .argument('<name>', 'the repository')
    .option('--all', 'also those that are closed or merged')
    .action(async (name: string, { all }: { readonly all?: boolean }) => {
      const found = await at(name).pulls({ state: all ? 'all' : 'open', signal });
      cli.out.result(found, () =>
        cli.out.table(['PR', 'STATE', 'BRANCHES', 'TITLE'], found.map(pullRow), 'No pull requests.'),
      );
    });
  verb(pr, 'show', 'Show a pull request, its checks and reviews')
    .argument('<name>', 'the repository')
    .argument('<number>', 'of the pull request', parseWhole)
    .action(async (name: string, number: number) => {
      const pull = await at(name).pull(number, { signal });
      const checks = await at(name).checks(pull.head_sha, { signal });
      const reviews = await at(name).reviews(number, { signal });
      cli.out.result({ ...pull, checks, reviews }, () =>
        [
          pullText(pull),
          ...(checks.length === 0
            ? ['no checks']
            : checks.map((each) => `check ${printableName(each.name)}: ${each.state}`)),
          ...reviews.map((each) => `review of ${printableName(each.author)}: ${each.state}`),
        ].join('\n'),
      );
    });
  verb(pr, 'create', 'Open a pull request')
    .argument('<name>', 'the repository')
    .argument('<branch>', 'where the commits are')
    .requiredOption('--title <text>', 'what it does')
    .option('--body <text>', 'why', '')
    .option('--base <branch>', 'where they are to go (default: the default branch)')
    .action(
      async (
        name: string,
        head: string,
        { title, body, base }: { readonly title: string; readonly body: string; readonly base?: string },
      ) => {
        const made = await at(name).createPull(
          { head, title, body, ...(base === undefined ? {} : { base }) },
          { signal },
        );
        cli.out.result(made, () => `#${made.number} ${made.url}`);
      },
    );
  verb(pr, 'review', 'Approve a pull request, or ask for changes')
    .argument('<name>', 'the repository')
    .argument('<number>', 'of the pull request', parseWhole)
    .option('--approve', 'it is good')
    .option('--request-changes', 'it is not good yet')
    .option('--body <text>', 'what you think of it', '')
    .action(
      async (
        name: string,
        number: number,
        options: { readonly approve?: boolean; readonly requestChanges?: boolean; readonly body: string },
      ) => {
        if (options.approve && options.requestChanges)
          throw new CoppiceError('invalid_argument', 'a review approves or asks for changes, not both');
        const decided = options.requestChanges ? 'changes_requested' : 'commented';
        const state = options.approve ? 'approved' : decided;
        const review = await at(name).review(number, { state, body: options.body }, { signal });
        cli.out.result(review, () => `#${number}: ${review.state}`);
      },
    );
  verb(pr, 'check', 'Report the result of a check on a pull request')
    .argument('<name>', 'the repository')
    .argument('<number>', 'of the pull request', parseWhole)
    .argument('<check>', 'its name')
    .addArgument(program.createArgument('<state>', 'how it went').choices(['pending', 'success', 'failure']))
    .action(async (name: string, number: number, check: string, state: 'pending' | 'success' | 'failure') => {
      const { head_sha: sha } = await at(name).pull(number, { signal });
      await at(name).reportCheck({ sha, name: check, state }, { signal });
      cli.out.result({ sha, name: check, state }, () => `${check} of ${sha.slice(0, 10)}: ${state}`);
    });
  verb(pr, 'merge', 'Merge a pull request as it is now; conflicts are never forced')
    .argument('<name>', 'the repository')
    .argument('<number>', 'of the pull request', parseWhole)
    .addOption(
      new Option('--method <method>', 'how').choices(['squash', 'merge', 'rebase']).default('squash'),
    )
    .option('--head <sha>', 'only if its head is still this commit')
    .action(
      async (
        name: string,
        number: number,
        { method, head }: { readonly method: 'squash' | 'merge' | 'rebase'; readonly head?: string },
      ) => {
        const expected = head ?? (await at(name).pull(number, { signal })).head_sha;
        const merged = await at(name).mergePull(number, { expected_head: expected, method }, { signal });
        cli.out.result(merged, () => `merged as ${merged.merge_sha}`);
      },
    );
  verb(pr, 'close', 'Close a pull request without merging it')
    .argument('<name>', 'the repository')
    .argument('<number>', 'of the pull request', parseWhole)
    .action(async (name: string, number: number) => {
      const closed = await at(name).closePull(number, { signal });
      cli.out.result(closed, () => `#${number} is closed`);
    });
};
