import { spawn } from 'node:child_process';
import { CoppiceError } from '@coppice/protocol';

export interface ProgramOptions {
  readonly input?: string;
  /** Besides the fixed environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Exit codes that are an answer and not a failure; 0 always is one. */
  readonly accept?: readonly number[];
}

export interface ProgramResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

const shownStderrChars = 2000;

/**
 * Runs a program of the system to its end. argv only, never a shell; the environment is a fixed small one, so that
 * locale or proxy settings of whoever started the daemon change neither what a program prints nor what it does.
 */
export async function runProgram(
  argv: readonly [string, ...string[]],
  options: ProgramOptions = {},
): Promise<ProgramResult> {
  const [program, ...args] = argv;
  const result = await new Promise<ProgramResult>((resolve, reject) => {
    const child = spawn(program, args, {
      env: { PATH: systemPath, LC_ALL: 'C.UTF-8', ...options.env },
      stdio: ['pipe', 'pipe', 'pipe'],
      signal: options.signal,
      killSignal: 'SIGKILL',
    });
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    child.on('error', (error: NodeJS.ErrnoException) => reject(startFailure(program, error)));
    // A program may end without reading its input; its exit code then says what happened.
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
    child.on('close', (exitCode, signal) => {
      const err = Buffer.concat(stderr).toString('utf8');
      resolve({
        stdout: Buffer.concat(stdout).toString('utf8'),
        stderr: signal === null ? err : `${err}ended by ${signal}`,
        exitCode: exitCode ?? 128,
      });
    });
  });
  if (result.exitCode !== 0 && !(options.accept ?? []).includes(result.exitCode)) {
    throw new CoppiceError(
      'internal',
      `${[program, ...args].join(' ')} failed with exit code ${result.exitCode}: ${result.stderr.trim().slice(0, shownStderrChars)}`,
    );
  }
  return result;
}

/** Where Debian and its relatives keep system programs; `sbin` is often missing from a user's own PATH. */
export const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export function startFailure(program: string, error: NodeJS.ErrnoException): CoppiceError {
  if (error.name === 'AbortError') {
    return new CoppiceError('cancelled', `${program} was cancelled`, { cause: error });
  }
  if (error.code === 'ENOENT') {
    return new CoppiceError('unsupported', `the program ${program} is not installed`, {
      hint: `Install the package that has ${program}, then try again; \`coppice doctor\` names what is missing.`,
      cause: error,
    });
  }
  return new CoppiceError('internal', `${program} could not be started: ${error.message}`, { cause: error });
}
