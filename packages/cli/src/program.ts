import { CoppiceError } from '@coppice/protocol/errors';
import { Command, CommanderError, Option } from 'commander';
import type { Cli, CommonOptions } from './cli.ts';
import { commands, isCommandName } from './commands/registry.ts';
import { version } from './version.ts';

/** The program with the named commands; without names, with all of them. */
export const buildProgram = async (cli: Cli, names = Object.keys(commands)): Promise<Command> => {
  const program = new Command('coppice')
    .description('Sandboxes that can be snapshotted, restored, forked, compared and merged')
    .version(version, '-V, --version', 'show the version')
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .addOption(new Option('--json').hideHelp())
    .addOption(new Option('--home <dir>').hideHelp())
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => cli.io.stdout.write(text),
      // What is wrong is said once, where every error is.
      writeErr: () => undefined,
      outputError: () => undefined,
    });
  for (const name of names) {
    if (!isCommandName(name)) continue;
    const { heading, load } = commands[name];
    (await load()).define(program, cli);
    program.commands.at(-1)?.helpGroup(`${heading}:`);
  }
  program.hook('preAction', (_program, action) => {
    const options = action.optsWithGlobals<CommonOptions>();
    if (options.home === '') throw homeWithoutName();
    cli.configure(options);
  });
  return program;
};

/** Runs a command line, without the name of the program in front. */
export const runProgram = async (cli: Cli, given: readonly string[]): Promise<void> => {
  const argv = helpAsOption(given);
  const first = argv[verbIndex(argv)];
  const known = isCommandName(first);
  const program = await buildProgram(cli, known ? [first] : undefined);
  if (first !== undefined && !known && !first.startsWith('-') && argv.includes('--help'))
    throw new CoppiceError('invalid_argument', `unknown command '${first}'`, {
      hint: 'See `coppice --help`.',
    });
  if (first === undefined && argv.length > 0) throw homeWithoutName();
  if (first === undefined) {
    cli.io.stdout.write(program.helpInformation());
    return;
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw known ? refusedInput(error, first) : error;
    if (error.exitCode === 0) return;
    const words = program.commands[0]?.commands.map((command) => command.name()) ?? [];
    throw error.code === 'commander.help'
      ? new CoppiceError('invalid_argument', `coppice ${first} needs one of: ${words.join(', ')}`, {
          hint: `See \`coppice ${first} --help\`.`,
        })
      : usageError(error, known ? first : undefined);
  }
};

const homeWithoutName = (): CoppiceError =>
  new CoppiceError('invalid_argument', '--home names no directory', {
    hint: 'Give the data directory of the daemon, or leave --home out.',
  });

/** Options that every command takes may also stand before it. */
const verbIndex = (argv: readonly string[]): number => {
  let index = 0;
  while (argv[index] === '--json' || argv[index]?.startsWith('--home'))
    index += argv[index] === '--home' ? 2 : 1;
  return index;
};

/** `coppice help create` is `coppice create --help`. */
const helpAsOption = (argv: readonly string[]): readonly string[] => {
  const at = verbIndex(argv);
  return argv[at] === 'help' ? [...argv.slice(0, at), ...argv.slice(at + 1), '--help'] : argv;
};

/** What the daemon refuses of a request, without the parts of HTTP: the help of the command is the next step here. */
const refusedInput = (error: unknown, command: string): unknown => {
  if (!(error instanceof CoppiceError) || error.code !== 'invalid_argument') return error;
  const { details } = error;
  const issues = details?.issues as readonly { path: readonly string[]; message: string }[] | undefined;
  if (details === undefined || issues === undefined) return error;
  const said = issues.map(({ path, message }) => (path.length === 0 ? message : `${path[0]}: ${message}`));
  return new CoppiceError('invalid_argument', said.join('; '), {
    hint: `See \`coppice ${command} --help\`.`,
    details,
    cause: error,
  });
};

const usageError = (error: CommanderError, command: string | undefined): CoppiceError => {
  const [message = '', suggestion] = error.message.replace(/^error: /, '').split('\n');
  const help = `coppice ${command === undefined ? '' : `${command} `}--help`;
  const hint = suggestion ? `${suggestion.replace(/^\(|\)$/g, '')} See \`${help}\`.` : `See \`${help}\`.`;
  return new CoppiceError('invalid_argument', message, { hint, cause: error });
};
