import { type Command, Option } from 'commander';
import type { Cli } from './cli.ts';

/** Adds one command, or one with subcommands, to the program. */
export type DefineCommand = (program: Command, cli: Cli) => void;

/** A command with the options that all of them take. */
export const verb = (parent: Command, name: string, summary: string): Command =>
  parent
    .command(name)
    .description(summary)
    .addOption(new Option('--json', 'print JSON, for programs'))
    .addOption(new Option('--home <dir>', 'data directory of the daemon (default: COPPICE_HOME)'))
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .showHelpAfterError(false)
    .allowExcessArguments(false);

/** What stands after a command line in its help. */
export const examples = (...lines: readonly string[]): string =>
  `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`;
