import { resolve } from 'node:path';
import { describeError } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { globalOptions, parseArguments } from './arguments.ts';
import { JvsContext } from './jvs-context.ts';
import type { JvsIo } from './jvs-io.ts';
import { findCommandName, loadCommand } from './registry.ts';
import { version } from './version.ts';

/** Global options may come before the command: `jvs --json history`. */
const splitCommand = (argv: readonly string[]): { word: string | undefined; rest: string[] } => {
  for (let at = 0; at < argv.length; at += 1) {
    const word = argv[at] ?? '';
    if (!word.startsWith('-')) return { word, rest: [...argv.slice(0, at), ...argv.slice(at + 1)] };
    const option = globalOptions.find(({ name, short }) => word === `--${name}` || word === `-${short}`);
    if (option?.kind === 'value') at += 1;
  }
  return { word: undefined, rest: [...argv] };
};

const currentDirectory = (io: JvsIo): string => {
  if (io.cwd !== undefined) return io.cwd;
  throw new CoppiceError('not_found', 'the current directory is gone', {
    hint: 'Go to one that exists with cd.',
  });
};

/** `jvs`, `jvs --help`, `jvs help` and `jvs help COMMAND`. */
const help = async (word: string | undefined, rest: readonly string[], io: JvsIo): Promise<number> => {
  const { commandHelp, generalHelp } = await import('./help.ts');
  const spec = { name: 'help', usage: '[COMMAND]', summary: '', options: [], least: 0, most: 1 };
  const [about] = parseArguments(spec, rest).words;
  if (about === undefined) {
    io.stdout.write(await generalHelp());
    return word === undefined && rest.length === 0 ? 2 : 0;
  }
  const name = findCommandName(about);
  if (!name) {
    throw new CoppiceError('invalid_argument', `there is no command \`jvs ${about}\``, {
      hint: 'See `jvs help`.',
    });
  }
  io.stdout.write(commandHelp(await loadCommand(name)));
  return 0;
};

const dispatch = async (argv: readonly string[], io: JvsIo): Promise<number> => {
  const { word, rest } = splitCommand(argv);
  if (word === undefined && (rest.includes('--version') || rest.includes('-V'))) {
    io.stdout.write(`jvs ${version}\n`);
    return 0;
  }
  if (word === undefined || word === 'help') return help(word, rest, io);
  const name = findCommandName(word);
  if (!name) {
    throw new CoppiceError('invalid_argument', `there is no command \`jvs ${word}\``, {
      hint: 'See `jvs help`.',
    });
  }
  const command = await loadCommand(name);
  const args = parseArguments(command, rest);
  if (args.has('help')) {
    io.stdout.write((await import('./help.ts')).commandHelp(command));
    return 0;
  }
  const directory = resolve(currentDirectory(io), args.value('directory') ?? '.');
  using context = new JvsContext(args, io, directory);
  return await command.run(context);
};

/** What to do next where there is no daemon. */
const hints = {
  forbidden: 'Look at the owner, the mode and `lsattr` of that path, or run as a user who may.',
  not_found: 'See `jvs history` and `jvs worktree list` for what there is.',
  wrong_state: 'Run it again when nothing else changes the files.',
  unsupported: 'Run `jvs doctor` to see what this filesystem offers.',
  limit_reached: 'Free some memory, and run it again.',
  internal: 'Run `jvs doctor`; `--debug` shows where it happened.',
  corrupt: 'Run `jvs verify --all`; restore a snapshot that is whole, or a backup of `.jvs`.',
  no_space: 'Free some space; `jvs gc plan` lists what may go.',
} as const;

/** Says what went wrong, and answers the exit code. */
export const explain = (error: unknown, argv: readonly string[], { stderr }: JvsIo): number => {
  const { text, json, exitCode } = describeError(error, hints);
  const own = argv.includes('--') ? argv.slice(0, argv.indexOf('--')) : argv;
  stderr.write(own.includes('--json') ? `${JSON.stringify(json)}\n` : `jvs: ${text}\n`);
  if (own.includes('--debug') && error instanceof Error) stderr.write(`${error.stack}\n`);
  return exitCode;
};

/** `jvs …`, and `coppice workspace …`. Answers the exit code. */
export const runJvs = async (argv: readonly string[], io: JvsIo): Promise<number> => {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    return explain(error, argv, io);
  }
};
