import { formatBytes, printable } from '@coppice/console';
import type { MergedCommits, RouteBody, SwarmTask } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { parseDurationMs } from '../args/duration.ts';
import { collect, collectEnv } from '../args/key-value.ts';
import { parseWhole } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const strategies: MergedCommits['strategy'][] = ['sequential', 'branch-per-source', 'cherry-pick'];

interface Options {
  readonly task: readonly string[];
  readonly snapshot?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly parallel?: number;
  readonly timeout?: number;
  readonly mergeInto?: string;
  readonly strategy: MergedCommits['strategy'];
  readonly path?: string;
  readonly keep?: boolean;
  readonly internet?: boolean;
  readonly context?: string;
}

const taskOf = (text: string): RouteBody<'runSwarm'>['tasks'][number] => {
  const equals = text.indexOf('=');
  if (equals > 0 && equals < text.length - 1)
    return { name: text.slice(0, equals), command: text.slice(equals + 1) };
  throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not NAME=COMMAND`, {
    hint: "For example: --task tests='npm test'",
  });
};

const taskText = (cli: Cli, task: SwarmTask): string => {
  const how = task.success
    ? cli.out.paint('green', 'succeeded')
    : cli.out.paint(
        'red',
        task.error ?? (task.timed_out ? 'timed out' : `failed (exit code ${task.exit_code})`),
      );
  const streams = (['stdout', 'stderr'] as const).flatMap((stream) => {
    const text = printable(task[stream]).trimEnd();
    const cutBytes = task[`${stream}_cut_bytes`];
    const rest = cutBytes === 0 ? [] : [`  … and ${formatBytes(cutBytes)} more`];
    return text === '' ? rest : [...text.split('\n').map((line) => `  ${line}`), ...rest];
  });
  return [`${task.name}: ${how}`, ...streams].join('\n');
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'swarm', 'Run each task in its own fork of a snapshot, and merge their commits if asked')
    .argument('<sandbox>', 'the sandbox with the snapshot; `coppice prepare` makes one')
    .requiredOption('--task <name=command>', 'a task; may be given again, up to 20 times', collect)
    .option('--snapshot <name>', 'snapshot to fork from (default: golden)')
    .option('-e, --env <key=value>', 'variable for every task; may be given again', collectEnv(cli.io.env))
    .option('--parallel <number>', 'how many at once (default: 4)', parseWhole)
    .option('--timeout <time>', 'for each task (default: 10m)', parseDurationMs)
    .option('--merge-into <sandbox>', 'bring the commits of tasks that succeed into its repository')
    .addOption(
      new Option('--strategy <strategy>', 'how commits are brought in')
        .choices(strategies)
        .default('sequential'),
    )
    .option('--path <dir>', 'directory of the repository, the same in all (default: /workspace)')
    .option('--keep', 'keep the workers (default: destroy them at the end)')
    .option('--internet', 'allow the workers the internet')
    .option('--context <text>', 'text for every task, in the file that SHARED_CONTEXT names')
    .addHelpText(
      'after',
      examples("coppice swarm gold --task unit='npm test' --task lint='npm run lint' --parallel 2"),
    )
    .action(async (ref: string, options: Options) => {
      const { snapshot, env, parallel, timeout, mergeInto, path, context } = options;
      const tasks = options.task.map(taskOf);
      const swarm = await cli.out.during(`running ${tasks.length} tasks`, (progress) =>
        cli.coppice.sandboxes.at(ref).swarm(tasks, {
          merge_strategy: options.strategy,
          keep_workers: options.keep === true,
          ...(options.internet === true ? { allow_internet: true } : {}),
          ...(snapshot === undefined ? {} : { snapshot }),
          ...(env === undefined ? {} : { env }),
          ...(parallel === undefined ? {} : { parallel }),
          ...(timeout === undefined ? {} : { timeout_ms: timeout }),
          ...(mergeInto === undefined ? {} : { merge_into: mergeInto }),
          ...(path === undefined ? {} : { merge_path: path }),
          ...(context === undefined ? {} : { shared_context: context }),
          onEvent: (event) => {
            if (event.type === 'task') progress.update(event);
          },
          signal: cli.signal,
        }),
      );
      const failed = swarm.tasks.filter((task) => !task.success).length;
      const merged = swarm.merge === null ? [] : [`${swarm.merge.commits} commits went into ${mergeInto}`];
      const left =
        swarm.merge?.conflicts.map(({ sandbox_id: id, error }) => `${id}: left out, ${error}`) ?? [];
      cli.out.result(swarm, () =>
        [
          ...swarm.tasks.map((task) => taskText(cli, task)),
          ...left.map(printable),
          ...merged,
          `${swarm.tasks.length - failed} of ${swarm.tasks.length} tasks succeeded`,
        ].join('\n'),
      );
      if (failed > 0 || swarm.merge?.success === false) cli.exitCode = 1;
    });
};
