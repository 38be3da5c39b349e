import { readFileSync } from 'node:fs';

/** When a process started, in ticks since boot: with its number it names one process for ever. Undefined when it is gone. */
export const startTicksOf = (pid: number): string | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended, and only waits for its parent to notice.
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19];
  } catch {
    return undefined;
  }
};
