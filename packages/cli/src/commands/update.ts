import type { RouteBody } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { parseDurationSeconds } from '../args/duration.ts';
import { collect, collectEnv, collectLabels } from '../args/key-value.ts';
import { addLimitOptions } from '../args/sandbox-options.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface UpdateOptions {
  readonly name?: string;
  readonly cpus?: number;
  readonly memory?: number;
  readonly disk?: number;
  readonly pids?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly unsetEnv?: readonly string[];
  readonly label?: Readonly<Record<string, string>>;
  readonly idleTimeout?: number | 'never';
  readonly idleAction?: 'pause' | 'stop';
  readonly maxLifetime?: number | 'never';
}

const parseTimeOrNever = (text: string): number | 'never' =>
  text === 'never' ? text : parseDurationSeconds(text);

const secondsOf = (time: number | 'never' | undefined): number | null | undefined =>
  time === 'never' ? null : time;

const envOf = ({ env, unsetEnv }: UpdateOptions): Record<string, string | null> | undefined => {
  if (env === undefined && unsetEnv === undefined) return undefined;
  return { ...env, ...Object.fromEntries((unsetEnv ?? []).map((name) => [name, null])) };
};

const changesOf = (options: UpdateOptions): RouteBody<'updateSandbox'> => {
  const changes: RouteBody<'updateSandbox'> = {
    name: options.name,
    cpus: options.cpus,
    memory_mb: options.memory,
    disk_mb: options.disk,
    pids: options.pids,
    env: envOf(options),
    labels: options.label,
    idle_timeout_s: secondsOf(options.idleTimeout),
    idle_action: options.idleAction,
    max_lifetime_s: secondsOf(options.maxLifetime),
  };
  if (Object.values(changes).some((value) => value !== undefined)) return changes;
  throw new CoppiceError('invalid_argument', 'nothing to change was given', {
    hint: 'See `coppice update --help` for what can be changed; `coppice net` changes the network.',
  });
};

export const define: DefineCommand = (program, cli) => {
  const update = verb(
    program,
    'update',
    'Change the name, limits, variables, labels or times of a sandbox, also while it runs',
  )
    .argument('<sandbox>', 'name or id')
    .option('--name <name>', 'another name');
  addLimitOptions(update)
    .option(
      '-e, --env <key=value>',
      'variable for what starts from now on (repeatable)',
      collectEnv(cli.io.env),
    )
    .option('--unset-env <key>', 'variable that it shall have no more (repeatable)', collect)
    .option('-l, --label <key=value>', 'labels in place of those it has (repeatable)', collectLabels)
    .option('--idle-timeout <time>', 'sleep after this long without use, or never', parseTimeOrNever)
    .addOption(new Option('--idle-action <action>', 'what sleep means').choices(['pause', 'stop']))
    .option('--max-lifetime <time>', 'destroy it after this long, or never', parseTimeOrNever)
    .addHelpText(
      'after',
      examples('coppice update dev --memory 2g --cpus 2', 'coppice update dev --idle-timeout never'),
    )
    .action(async (ref: string, options: UpdateOptions) => {
      const changes = changesOf(options);
      const sandbox = await cli.coppice.sandboxes.at(ref).update(changes, { signal: cli.signal });
      cli.out.result(sandbox.info, () => sandbox.name);
    });
};
