import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';

export interface ProgramOptions {
  readonly input?: string;
  /** Besides the fixed environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** How long it may take; then it is killed, and the call fails with `timeout`. */
  readonly deadlineMs?: number;
  /** Told which process it is. */
  readonly onStarted?: ((pid: number) => void) | undefined;
  /** Exit codes that are an answer and not a failure; 0 always is one. */
  readonly accept?: readonly number[];
}

export interface ProgramResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

const shownStderrChars = 2000;
/** A process that hangs in the kernel does not even end when it is killed. */
const diesWithinMs = 5000;

/**
 * Runs a program of the system to its end. argv only, never a shell; the environment is a fixed small one, so that
 * locale or proxy settings of whoever started the daemon change neither what a program prints nor what it does. One that is given up
 * is gone, with all that it started in its process group, when this throws.
 */
export async function runProgram(
  argv: readonly [string, ...string[]],
  options: ProgramOptions = {},
): Promise<ProgramResult> {
  const [program, ...args] = argv;
  options.signal?.throwIfAborted();
  const result = await new Promise<ProgramResult>((resolve, reject) => {
    const child = spawn(program, args, {
      detached: true,
      env: { PATH: systemPath, LC_ALL: 'C.UTF-8', ...options.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    if (child.pid !== undefined) options.onStarted?.(child.pid);
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    const watch = new EarlyEnd(child, program, options, reject);
    child.on('error', (error: NodeJS.ErrnoException) => {
      watch.close();
      reject(startFailure(program, error));
    });
    // A program may end without reading its input; its exit code then says what happened.
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
    child.on('close', (exitCode, signal) => {
      watch.close();
      if (watch.isEnding) return;
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

/** Kills the child once nobody wants it any more or its time is up. */
class EarlyEnd {
  /** It is being killed: what it has to say is of no interest. */
  isEnding = false;
  readonly #child: ChildProcess;
  readonly #failed: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort: () => void;

  constructor(
    child: ChildProcess,
    program: string,
    { signal, deadlineMs }: ProgramOptions,
    failed: (error: unknown) => void,
  ) {
    this.#child = child;
    this.#failed = failed;
    this.#signal = signal;
    this.#onAbort = () =>
      void this.#end(new CoppiceError('cancelled', `${program} was cancelled`, { cause: signal?.reason }));
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (deadlineMs !== undefined)
      this.#timer = setTimeout(() => void this.#end(late(program, deadlineMs)), deadlineMs);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#onAbort);
  }

  async #end(error: CoppiceError): Promise<void> {
    if (this.isEnding) return;
    this.isEnding = true;
    await killGroup(this.#child);
    this.#failed(error);
  }
}

const late = (program: string, deadlineMs: number): CoppiceError =>
  new CoppiceError('timeout', `${program} did not end within ${deadlineMs / 1000} s and was killed`, {
    hint: 'The machine may be overloaded, or the program or its disk hangs; `coppice doctor` may say which.',
  });

/** Ends a child that leads a process group, and that group; returns when the child is gone, or will not go. */
export async function killGroup(child: ChildProcess): Promise<void> {
  if (child.pid === undefined) return;
  const gone = new Promise<void>((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve();
    else child.once('exit', () => resolve());
  });
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
  const patience = new AbortController();
  await Promise.race([gone, sleep(diesWithinMs, undefined, { signal: patience.signal }).catch(() => {})]);
  patience.abort();
  // What it started in other groups may hold these open.
  for (const stream of child.stdio) stream?.destroy();
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
