import { CoppiceError } from '@coppice/protocol/errors';
import {
  addProcessOptions,
  addTimeoutOption,
  commandLine,
  type ProcessFlags,
  processFields,
} from '../args/process-options.ts';
import { exitCodeOf } from '../exit-code.ts';
import { Interruption } from '../interruption.ts';
import { runCommand } from '../process/run-command.ts';
import { terminalSize, useTerminal } from '../process/use-terminal.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends ProcessFlags {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly input: boolean;
  readonly detach?: boolean;
  readonly keepAwake: boolean;
}

const lines = [
  "coppice exec dev -- sh -c 'make && make test'",
  'coppice exec --user user --cwd /tmp dev id',
  'tar c src | coppice exec dev -- tar x -C /workspace',
  'coppice exec --detach dev -- ./server',
];

export const define: DefineCommand = (program, cli) => {
  addTimeoutOption(
    addProcessOptions(verb(program, 'exec', 'Run a command in a sandbox and exit with its exit code'), cli),
  )
    .argument('<sandbox>', 'name or id')
    .passThroughOptions()
    .argument('<command...>', 'program and arguments; a single word is a command line for the shell')
    .option('-i, --interactive', 'give it the input of a terminal too')
    .option('-t, --tty', 'run it in a terminal of its own')
    .option('--no-input', 'leave standard input alone')
    .option('-d, --detach', 'start it as a background job and print its number')
    .option('--no-keep-awake', 'with --detach: the sandbox may fall asleep while the job runs')
    .addHelpText('after', examples(...lines))
    .action(async (ref: string, words: string[], options: Options) => {
      const sandbox = cli.coppice.sandboxes.at(ref);
      const command = commandLine(words);
      const fields = processFields(options);
      if (options.detach && (options.tty || options.interactive)) {
        throw new CoppiceError('invalid_argument', 'a job in the background has no terminal and no input', {
          hint: 'Leave out --detach, or --tty and --interactive. `coppice shell` has terminals that can be left.',
        });
      }
      if (!options.keepAwake && !options.detach)
        throw new CoppiceError('invalid_argument', '--no-keep-awake goes with --detach');
      if (options.detach) {
        const job = await sandbox.jobs.start(command, {
          ...fields,
          keep_awake: options.keepAwake,
          signal: cli.signal,
        });
        cli.out.result(job, () => String(job.id));
      } else if (options.tty) {
        if (options.timeout !== undefined) {
          throw new CoppiceError('invalid_argument', 'a command in a terminal has no timeout', {
            hint: 'Leave out --tty or --timeout.',
          });
        }
        const { id } = await sandbox.terminals.open({
          command,
          ...terminalSize(cli.io.stdout),
          ...fields,
          signal: cli.signal,
        });
        try {
          cli.exitCode = await useTerminal(cli, sandbox, id);
        } finally {
          const interruption = Interruption.of(cli.signal);
          if (interruption !== undefined) await sandbox.terminals.kill(id, interruption.number);
        }
      } else if (cli.out.isJson) {
        const result = await sandbox.exec(command, { ...fields, signal: cli.signal });
        cli.out.result(result, () => '');
        cli.exitCode = exitCodeOf(result);
      } else {
        const withInput = options.input && (options.interactive === true || !cli.io.stdin.isTTY);
        cli.exitCode = await runCommand(cli, sandbox, command, fields, withInput);
      }
    });
};
