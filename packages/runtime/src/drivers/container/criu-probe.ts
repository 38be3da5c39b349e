import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { runProgram, systemPath } from '../../programs/run-program.ts';

/** Older ones do not know the vDSO of current kernels, and fail in the middle of a restore. */
const leastMajor = 4;
const shownChars = 500;
const deadlineMs = 30_000;

/** CRIU where it can be used, else why not, as exactly as it can be told. */
export type CriuFinding =
  | { readonly program: string; readonly version: string }
  | { readonly refusal: string };

/** A path: a restore starts it from where no PATH is looked at. */
const findProgram = (): string | undefined =>
  systemPath
    .split(':')
    .map((directory) => join(directory, 'criu'))
    .find((path) => existsSync(path));

/** Given up with the signal. */
export const probeCriu = async (configured?: string, signal?: AbortSignal): Promise<CriuFinding> => {
  const program = configured ?? findProgram();
  if (program === undefined) return { refusal: 'CRIU is not installed' };
  let version: string;
  try {
    const { stdout } = await runProgram([program, '--version'], { deadlineMs, signal });
    version = /Version:\s*(\S+)/.exec(stdout)?.[1] ?? 'unknown';
  } catch (error) {
    if (error instanceof CoppiceError && error.code === 'unsupported')
      return { refusal: `CRIU is not installed: there is no ${program}` };
    throw error;
  }
  if (!(Number.parseInt(version, 10) >= leastMajor))
    return { refusal: `CRIU ${version} is installed, and ${leastMajor} or later is needed` };
  const { exitCode, stdout, stderr } = await runProgram([program, 'check'], {
    accept: [1],
    deadlineMs,
    signal,
  });
  if (exitCode === 0) return { program, version };
  const said = `${stdout}${stderr}`.trim().slice(0, shownChars);
  return { refusal: `CRIU ${version} does not pass \`criu check\`: ${said}` };
};
