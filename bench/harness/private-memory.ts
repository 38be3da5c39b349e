import { readdirSync, readFileSync } from 'node:fs';

const mebibyte = 1024;

/** What the kernel would free if these processes ended now, in MiB. One that has just ended counts nothing. */
export const privateMemoryMb = (pids: readonly number[]): number =>
  pids.map(privateKb).reduce((sum, kb) => sum + kb, 0) / mebibyte;

/** Processes whose cgroup has this in its name. */
export const processesOf = (mark: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => readOrNothing(`/proc/${pid}/cgroup`).includes(mark))
    .map(Number);

const privateKb = (pid: number): number =>
  [...readOrNothing(`/proc/${pid}/smaps_rollup`).matchAll(/^Private_\w+:\s+(\d+) kB$/gm)].reduce(
    (sum, [, kb]) => sum + Number(kb),
    0,
  );

const readOrNothing = (path: string): string => {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
};
