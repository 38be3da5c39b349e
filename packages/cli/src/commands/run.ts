import type { Image } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { addTimeoutOption, commandLine, type ProcessFlags, processFields } from '../args/process-options.ts';
import { addSandboxOptions, createBody, type SandboxOptions } from '../args/sandbox-options.ts';
import { bringIn, labelsOf, planBringing } from '../brought-in/bring-in.ts';
import { exitCodeOf } from '../exit-code.ts';
import { findImage } from '../image-pull.ts';
import { runCommand } from '../process/run-command.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends SandboxOptions, Pick<ProcessFlags, 'user' | 'cwd' | 'timeout'> {
  readonly name?: string;
  readonly keep?: boolean;
}

/** What the image says is to be started. */
const commandOf = (image: Image | undefined, name: string | undefined): string[] => {
  const { entrypoint = [], cmd = [] } = image?.settings ?? {};
  const command = [...entrypoint, ...cmd];
  if (command.length > 0) return command;
  const names = name === undefined ? 'no image that names one' : `${name}, which names none`;
  throw new CoppiceError('invalid_argument', `no command was given, and ${names}`, {
    hint: 'Give one: coppice run [options] -- COMMAND',
  });
};

export const define: DefineCommand = (program, cli) => {
  addTimeoutOption(
    addSandboxOptions(verb(program, 'run', 'Create a sandbox, run a command in it, destroy it'), cli),
  )
    .passThroughOptions()
    .argument(
      '[command...]',
      'program and arguments; a single word is a command line for the shell (default: what the image starts)',
    )
    .option('--name <name>', 'name of the sandbox')
    .option('-u, --user <user>', 'user to run as (default: that of the image, or root)')
    .option('-w, --cwd <dir>', 'directory to run in')
    .option('--keep', 'leave the sandbox there afterwards')
    .addHelpText(
      'after',
      examples(
        'coppice run -- uname -a',
        'coppice run --image hello-world',
        'coppice run --internet -- curl -sI https://example.org',
      ),
    )
    .action(async (words: string[], options: Options) => {
      const parts = await planBringing(options);
      const image = options.image === undefined ? undefined : await findImage(cli, options.image);
      const command = words.length === 0 ? commandOf(image, options.image) : commandLine(words);
      const { user, cwd, timeout } = options;
      const fields = processFields({
        ...(user === undefined ? {} : { user }),
        ...(cwd === undefined ? {} : { cwd }),
        ...(timeout === undefined ? {} : { timeout }),
      });
      const sandbox = await cli.out.during('creating', () =>
        cli.coppice.sandboxes.create({
          ...createBody(options.name, options, labelsOf(parts)),
          signal: cli.signal,
        }),
      );
      if (!options.keep)
        cli.leftBehind = `${sandbox.name} is still there; remove it: coppice rm ${sandbox.name}`;
      try {
        await bringIn(cli, sandbox, parts, options.keep === true);
        if (cli.out.isJson) {
          const result = await sandbox.exec(command, { ...fields, signal: cli.signal });
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
