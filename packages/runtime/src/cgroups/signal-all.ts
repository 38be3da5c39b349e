import { readCgroupFile } from './cgroup-files.ts';

/** SIGKILL to each process of a group; true when there was none. */
export function killListed(procsFile: string): boolean {
  const pids = readCgroupFile(procsFile).split('\n').filter(Boolean).map(Number);
  for (const pid of pids) {
    // 0 stands for a process that this pid namespace cannot name; to signal it would signal ourselves.
    if (pid <= 1) continue;
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
  return pids.length === 0;
}
