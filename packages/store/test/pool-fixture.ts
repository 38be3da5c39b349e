import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const poolProgram = fileURLToPath(new URL('../../../guest/build/coppice-pool', import.meta.url));

export const run = promisify(execFile);

export const makeTemporaryDirectory = (): Promise<string> => mkdtemp(join(tmpdir(), 'coppice-store-'));

export const removeDirectory = (directory: string): Promise<void> =>
  rm(directory, { recursive: true, force: true });
