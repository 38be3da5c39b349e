import { readFileSync } from 'node:fs';

/** Names one process for ever: the kernel reuses pids, but not together with a start time. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks since boot, as the kernel writes them. */
  readonly started: string;
}

const startedField = 22;

/** When the process of this pid started; undefined when there is none, or when it only waits to be reaped. */
export function readStarted(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
  // The name may hold blanks and brackets; the fields after its last bracket do not.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
  return fields[startedField - 3];
}

export const isRunning = (identity: ProcessIdentity): boolean =>
  readStarted(identity.pid) === identity.started;
