import type { RouteBody } from '@coppice/protocol';
import { CoppiceError, isErrorCode } from '@coppice/protocol/errors';
import type { Sandbox } from '@coppice/sdk';
import { Option } from 'commander';
import { collectEnv, collectLabels } from '../args/key-value.ts';
import { parseWhole } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { outcomeText, runInAll } from '../process/run-in-all.ts';
import { noteLeftOut } from '../ui/left-out.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly count?: number;
  readonly n?: number;
  readonly run?: string;
  readonly parallel?: number;
  readonly rm?: boolean;
  readonly prefix?: string;
  readonly snapshot?: string;
  readonly memory?: boolean;
  readonly env?: Record<string, string>;
  readonly label?: Record<string, string>;
}

const isSnapshot = (ref: string): boolean => /^sn_[0-9a-z]{26}$/.test(ref) || ref.includes(':');

const grow = (cli: Cli, source: string, name: string | undefined, options: Options) => {
  const fields: RouteBody<'forkSnapshot'> = {
    name,
    name_prefix: options.prefix,
    count: options.count,
    env: options.env,
    labels: options.label,
  };
  const { signal } = cli;
  if (!isSnapshot(source)) {
    const { snapshot, memory } = options;
    return cli.coppice.sandboxes.at(source).fork({ ...fields, snapshot, memory, signal });
  }
  if (options.snapshot !== undefined || options.memory !== undefined) {
    throw new CoppiceError(
      'invalid_argument',
      `${source} is a snapshot: --snapshot and --memory are for sandboxes`,
      {
        hint: 'A fork of a checkpoint has its memory by itself.',
      },
    );
  }
  return cli.coppice.snapshots.fork(source, { ...fields, signal });
};

/** One of the two ways to say how many, and nothing that would be ignored. */
const checked = (options: Options): Options => {
  if (options.n !== undefined && options.count !== undefined)
    throw new CoppiceError('invalid_argument', '-n and --count are the same: give one of them');
  if (options.run === undefined && (options.parallel !== undefined || options.rm))
    throw new CoppiceError('invalid_argument', '--parallel and --rm go with --run');
  return options.n === undefined ? options : { ...options, count: options.n };
};

const runIn = async (
  cli: Cli,
  forks: readonly Sandbox[],
  command: string,
  value: object,
  { parallel = forks.length, rm }: Options,
): Promise<void> => {
  try {
    const targets = forks.map((sandbox) => ({ name: sandbox.name, sandbox }));
    const results = await runInAll(cli, targets, command, { fields: {}, parallel });
    cli.out.result({ ...value, results }, () => outcomeText(cli, results));
  } finally {
    if (rm) await cli.out.during('removing', () => Promise.all(forks.map((fork) => fork.destroy())));
  }
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'fork', 'Fork new sandboxes from a sandbox or a snapshot')
    .argument('<source>', 'sandbox by name or id; snapshot by id or as sandbox:snapshot')
    .argument('[name]', 'name of the fork')
    .option('-c, --count <number>', 'how many, in parallel', parseWhole)
    .addOption(new Option('-n <number>', 'the same as --count').argParser(parseWhole))
    .option('--prefix <text>', 'names are prefix-1, prefix-2 …')
    .option('--snapshot <name>', 'from this snapshot of the sandbox instead of from now')
    .option('--memory', 'with the memory of its processes')
    .option('-e, --env <key=value>', 'variable to add (repeatable)', collectEnv(cli.io.env))
    .option('-l, --label <key=value>', 'label (repeatable)', collectLabels)
    .option('--run <command>', 'run this command line in each of them, and show how each ended')
    .option('--parallel <number>', 'with --run: how many at once (default: all)', parseWhole)
    .option('--rm', 'with --run: destroy the forks afterwards')
    .addHelpText(
      'after',
      examples(
        'coppice fork dev try',
        'coppice fork dev:baseline --count 3 --prefix way',
        "coppice fork dev -n 20 --run 'make test' --rm",
      ),
    )
    .action(async (source: string, name: string | undefined, given: Options) => {
      const options = checked(given);
      const forks = await cli.out.during('forking', () => grow(cli, source, name, options));
      noteLeftOut(cli, forks.left_out);
      const value = {
        snapshot_id: forks.snapshot_id,
        forks: forks.sandboxes.map(({ info }) => info),
        failures: forks.failures,
        left_out: forks.left_out,
      };
      if (options.run === undefined)
        cli.out.result(value, () => forks.sandboxes.map((fork) => fork.name).join('\n'));
      else await runIn(cli, forks.sandboxes, options.run, value, options);
      const [failed] = forks.failures;
      if (failed !== undefined) {
        const code = isErrorCode(failed.code) ? failed.code : 'internal';
        throw new CoppiceError(
          code,
          `${forks.failures.length} forks failed; ${failed.name}: ${failed.message}`,
        );
      }
    });
};
