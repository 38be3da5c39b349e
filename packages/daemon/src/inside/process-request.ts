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

/** What the caller asked for, on top of what every process of the sandbox gets. */
export const toProcessRequest = (lease: GuestLease, input: CommandInput): ProcessRequest => {
  const { cwd = lease.cwd, user = lease.user, timeout_ms: timeoutMs } = input;
  return {
    argv: toArgv(input.command),
    env: { ...lease.env, ...input.env },
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  };
};

export const toExit = (exit: ExitStatus): Exit => ({
  exit_code: exit.code,
  signal: exit.signal,
  timed_out: exit.timedOut,
});
