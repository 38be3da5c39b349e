import { CoppiceError } from '@coppice/protocol/errors';
import type { TakeOut } from '@coppice/sdk';
import type { Command } from 'commander';
import { parseWhole } from './number.ts';
import { parseMegabytes } from './size.ts';

export interface TakeOutFlags {
  readonly maxSize?: number;
  readonly maxFiles?: number;
}

/** How much comes out of a sandbox at most: it decides what its files say about themselves. */
export const addTakeOutOptions = (command: Command): Command =>
  command
    .option('--max-size <size>', 'take no more than this out of a sandbox (default: 16g)', parseMegabytes)
    .option('--max-files <number>', 'take no more files and directories (default: 1000000)', parseWhole);

export const takeOutOf = ({ maxSize, maxFiles }: TakeOutFlags): TakeOut => ({
  ...(maxSize === undefined ? {} : { maxBytes: maxSize * 1024 ** 2 }),
  ...(maxFiles === undefined ? {} : { maxFiles }),
});

/** Where nothing comes out of a sandbox onto this machine. */
export const assertNotGiven = ({ maxSize, maxFiles }: TakeOutFlags): void => {
  if (maxSize === undefined && maxFiles === undefined) return;
  throw new CoppiceError(
    'invalid_argument',
    '--max-size and --max-files are for what comes out of a sandbox onto this machine',
    { hint: 'Leave them out: the disk of the target has its own limit.' },
  );
};
