import type { Exit } from '@coppice/protocol';
import type { ExitStatus, ProcessRequest } from '@coppice/runtime';
import type { GuestLease } from './guest-access.ts';

export interface CommandInput {
  readonly command: string | readonly string[];
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  readonly user?: string | undefined;
  readonly timeout_ms?: number | undefined;
}

/** A command line runs in a shell; a list of words runs as it is. */
const toArgv = (command: string | readonly string[]): [string, ...string[]] =>
  typeof command === 'string' ? ['/bin/sh', '-c', command] : ([...command] as [string, ...string[]]);

/** What the caller asked for, on top of the environment of the sandbox. */
export const toProcessRequest = (lease: GuestLease, input: CommandInput): ProcessRequest => ({
  argv: toArgv(input.command),
  env: { ...lease.env, ...input.env },
  ...(input.cwd === undefined ? {} : { cwd: input.cwd }),
  ...(input.user === undefined ? {} : { user: input.user }),
  ...(input.timeout_ms === undefined ? {} : { timeoutMs: input.timeout_ms }),
});

export const toExit = (exit: ExitStatus): Exit => ({
  exit_code: exit.code,
  signal: exit.signal,
  timed_out: exit.timedOut,
});
