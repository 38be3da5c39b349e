import type { RouteBody } from '@coppice/protocol';
import { CoppiceError, isErrorCode } from '@coppice/protocol/errors';
import { collectEnv, collectLabels } from '../args/key-value.ts';
import { parseWhole } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly count?: number;
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

export const define: DefineCommand = (program, cli) => {
  verb(program, 'fork', 'Grow new sandboxes from a sandbox or a snapshot')
    .argument('<source>', 'sandbox by name or id; snapshot by id or as sandbox:snapshot')
    .argument('[name]', 'name of the fork')
    .option('-c, --count <number>', 'how many, in parallel', parseWhole)
    .option('--prefix <text>', 'names are prefix-1, prefix-2 …')
    .option('--snapshot <name>', 'from this snapshot of the sandbox instead of from now')
    .option('--memory', 'with the memory of its processes')
    .option('-e, --env <key=value>', 'variable to add (repeatable)', collectEnv(cli.io.env))
    .option('-l, --label <key=value>', 'label (repeatable)', collectLabels)
    .addHelpText(
      'after',
      examples('coppice fork dev try', 'coppice fork dev:baseline --count 3 --prefix way'),
    )
    .action(async (source: string, name: string | undefined, options: Options) => {
      const forks = await cli.out.during('forking', () => grow(cli, source, name, options));
      const value = {
        snapshot_id: forks.snapshotId,
        forks: forks.sandboxes.map(({ info }) => info),
        failures: forks.failures,
      };
      cli.out.result(value, () => forks.sandboxes.map((fork) => fork.name).join('\n'));
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
