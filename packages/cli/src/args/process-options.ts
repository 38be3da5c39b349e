import { CoppiceError } from '@coppice/protocol/errors';
import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { parseDurationMs } from './duration.ts';
import { collectEnv } from './key-value.ts';

export interface ProcessFlags {
  readonly user?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly timeout?: number;
}

/** Who runs a command, and where. */
export const addProcessOptions = (command: Command, cli: Cli): Command =>
  command
    .option('-u, --user <user>', 'user to run as, or user:group (default: that of the image, or root)')
    .option('-w, --cwd <dir>', 'directory to run in')
    .option('-e, --env <key=value>', 'variable for this command (repeatable)', collectEnv(cli.io.env));

export const addTimeoutOption = (command: Command): Command =>
  command.option('--timeout <time>', 'kill it after this long, such as 30s or 10m', parseDurationMs);

export const processFields = ({ user, cwd, env, timeout }: ProcessFlags) => ({
  ...(user === undefined ? {} : { user }),
  ...(cwd === undefined ? {} : { cwd }),
  ...(env === undefined ? {} : { env }),
  ...(timeout === undefined ? {} : { timeout_ms: timeout }),
});

/**
 * The command of `exec SANDBOX COMMAND`, whose own options are left to it; a leading `--` only parts them. A single
 * word is a command line for the shell.
 */
export const commandLine = (words: readonly string[]): string | string[] => {
  const argv = words[0] === '--' ? words.slice(1) : [...words];
  const [first] = argv;
  if (first === undefined || (words[0] !== '--' && first.startsWith('-'))) {
    throw new CoppiceError('invalid_argument', first ? `${first} is not a command` : 'no command was given', {
      hint: 'Options stand before the sandbox: coppice exec [options] SANDBOX -- COMMAND',
    });
  }
  return argv.length === 1 ? first : argv;
};
