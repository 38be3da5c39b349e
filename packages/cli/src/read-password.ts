import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Cli } from './cli.ts';

/** From standard input as it stands there, or typed without being shown. */
export const readPassword = async (cli: Cli, registry: string, fromStdin: boolean): Promise<string> => {
  const { stdin, stderr } = cli.io;
  if (fromStdin) {
    const password = (await text(stdin)).replace(/\r?\n$/, '');
    if (password !== '') return password;
    throw new CoppiceError('invalid_argument', 'standard input holds no password');
  }
  if (!stdin.isTTY)
    throw new CoppiceError('invalid_argument', 'there is no terminal to ask for the password on', {
      hint: `Give it on standard input: coppice images login ${registry} -u NAME --password-stdin`,
    });
  stderr.write(`Password for ${registry}: `);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const dialogue = createInterface({ input: stdin, output: nowhere, terminal: true });
  try {
    return await dialogue.question('', { signal: cli.signal });
  } finally {
    dialogue.close();
    stderr.write('\n');
  }
};
