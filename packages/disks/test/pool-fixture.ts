import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { guestProgram } from '@coppice/testkit';

export const poolProgram = guestProgram('coppice-pool');

export const run = promisify(execFile);

export const makeTemporaryDirectory = (): Promise<string> => mkdtemp(join(tmpdir(), 'coppice-store-'));

export const removeDirectory = (directory: string): Promise<void> =>
  rm(directory, { recursive: true, force: true });
