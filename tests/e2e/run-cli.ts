import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import type { RunningDaemon } from '@coppice/testkit';
import { expect } from 'vitest';

const run = promisify(execFile);
const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command line against a daemon, to its end. */
export async function runCli(daemon: RunningDaemon, ...argv: string[]): Promise<CliResult> {
  const env = { ...process.env, COPPICE_HOME: daemon.home };
  return run(process.execPath, [program, ...argv], { env }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }) as CliResult,
  );
}

/** Runs a command in a directory of a sandbox; it has to succeed. */
export async function shellIn(sandbox: Sandbox, directory: string, command: string): Promise<string> {
  const { exit_code, stdout, stderr } = await sandbox.exec(`cd ${directory} && ${command}`);
  expect({ exit_code, stderr }, command).toMatchObject({ exit_code: 0 });
  return stdout.trim();
}
