import { addTimeoutOption, commandLine, type ProcessFlags, processFields } from '../args/process-options.ts';
import { addSandboxOptions, createBody, type SandboxOptions } from '../args/sandbox-options.ts';
import { exitCodeOf } from '../exit-code.ts';
import { runCommand } from '../process/run-command.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends SandboxOptions, Pick<ProcessFlags, 'user' | 'cwd' | 'timeout'> {
  readonly name?: string;
  readonly keep?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  addTimeoutOption(
    addSandboxOptions(verb(program, 'run', 'Create a sandbox, run a command in it, destroy it'), cli),
  )
    .passThroughOptions()
    .argument('<command...>', 'program and arguments; a single word is a command line for the shell')
    .option('--name <name>', 'name of the sandbox')
    .option('-u, --user <user>', 'user to run as (default: root)')
    .option('-w, --cwd <dir>', 'directory to run in')
    .option('--keep', 'leave the sandbox there afterwards')
    .addHelpText(
      'after',
      examples('coppice run -- uname -a', 'coppice run --internet -- curl -sI https://example.org'),
    )
    .action(async (words: string[], options: Options) => {
      const command = commandLine(words);
      const { user, cwd, timeout } = options;
      const fields = processFields({
        ...(user === undefined ? {} : { user }),
        ...(cwd === undefined ? {} : { cwd }),
        ...(timeout === undefined ? {} : { timeout }),
      });
      const sandbox = await cli.out.during('creating', () =>
        cli.coppice.sandboxes.create({ ...createBody(options.name, options), signal: cli.signal }),
      );
      try {
        if (cli.out.isJson) {
          const result = await sandbox.exec(command, fields);
          cli.out.result({ sandbox_id: sandbox.id, ...result }, () => '');
          cli.exitCode = exitCodeOf(result);
        } else {
          cli.exitCode = await runCommand(cli, sandbox, command, fields, !cli.io.stdin.isTTY);
        }
      } finally {
        if (options.keep) cli.out.note(`kept ${sandbox.name}`);
        else await sandbox.destroy();
      }
    });
};
