import type { MachineLimits } from '../../driver.ts';

/** What gVisor's own kernel and file server take beside the programs that they run. */
const overheadBytes = 128 * 1024 * 1024;

/** Its kernel is a process here with threads of its own, and each thread inside has one outside. */
const overheadTasks = 256;

export const sandboxLimits = (limits: MachineLimits): MachineLimits => ({
  cpus: limits.cpus,
  memoryBytes: limits.memoryBytes + overheadBytes,
  pids: limits.pids * 4 + overheadTasks,
});
