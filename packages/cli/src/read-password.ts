import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Cli } from './cli.ts';

/** From standard input as it stands there, or typed without being shown. */
export const readPassword = async (cli: Cli, registry: string, fromStdin: boolean): Promise<string> => {
  if (fromStdin) return readLine(cli, 'standard input holds no password');
  if (!cli.io.stdin.isTTY)
    throw new CoppiceError('invalid_argument', 'there is no terminal to ask for the password on', {
      hint: `Give it on standard input: coppice images login ${registry} -u NAME --password-stdin`,
    });
  return askUnseen(cli, `Password for ${registry}: `);
};

/** Typed without being shown where there is a terminal, else all of standard input. */
export const readSecret = (cli: Cli, name: string): Promise<string> =>
  cli.io.stdin.isTTY ? askUnseen(cli, `Value of ${name}: `) : readLine(cli, 'standard input holds no value');

const readLine = async (cli: Cli, nothing: string): Promise<string> => {
  const line = (await text(cli.io.stdin)).replace(/\r?\n$/, '');
  if (line === '') throw new CoppiceError('invalid_argument', nothing);
  return line;
};

const askUnseen = async (cli: Cli, question: string): Promise<string> => {
  const { stdin, stderr } = cli.io;
  stderr.write(question);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const dialogue = createInterface({ input: stdin, output: nowhere, terminal: true });
  try {
    return await dialogue.question('', { signal: cli.signal });
  } finally {
    dialogue.close();
    stderr.write('\n');
  }
};
