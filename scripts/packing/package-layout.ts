import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const root = join(import.meta.dirname, '../..');

export interface PackageManifest {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly [key: string]: unknown;
}

export const readManifest = async (path: string): Promise<PackageManifest> =>
  JSON.parse(await readFile(path, 'utf8')) as PackageManifest;

const execute = promisify(execFile);

/** A program of the project's own tools; its output is part of the error when it fails. */
export const run = async (program: string, args: readonly string[], cwd = root): Promise<string> => {
  try {
    return (await execute(program, args, { cwd, maxBuffer: 64 * 1024 * 1024 })).stdout;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(' ')} failed\n${stdout}${stderr}`, { cause: error });
  }
};
