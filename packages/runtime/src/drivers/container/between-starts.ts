import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { SandboxCgroup } from '../../cgroups/sandbox-cgroup.ts';

/** clone, vfork and clone3, in which who starts a process may wait until it has executed its program. */
const starting: Readonly<Partial<Record<NodeJS.Architecture, ReadonlySet<string>>>> = {
  x64: new Set(['56', '58', '435']),
  arm64: new Set(['220', '435']),
};

const deadlineMs = 10_000;
const pauseMs = 2;

/**
 * Freezes the sandbox at a moment at which nobody waits for a process that he starts: such a one cannot be traced before that
 * process goes on, and CRIU would wait for him in vain.
 */
export const freezeBetweenStarts = async (cgroup: SandboxCgroup): Promise<void> => {
  const endMs = performance.now() + deadlineMs;
  for (;;) {
    await cgroup.freeze();
    if (!threadsOf(cgroup.freezerDirectory).some(isStarting)) return;
    await cgroup.thaw();
    if (performance.now() > endMs)
      throw new CoppiceError('timeout', 'the sandbox starts processes without a pause', {
        hint: 'Try again, or end what starts them.',
      });
    await sleep(pauseMs);
  }
};

function threadsOf(directory: string): string[] {
  const inVersion2 = join(directory, 'cgroup.threads');
  const file = existsSync(inVersion2) ? inVersion2 : join(directory, 'tasks');
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
}

/** By the system call that it is in. */
function isStarting(thread: string): boolean {
  try {
    const [number = ''] = readFileSync(`/proc/${thread}/syscall`, 'utf8').split(' ');
    return starting[process.arch]?.has(number) ?? false;
  } catch (error) {
    // Dead, and only waiting for its parent.
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return false;
    throw error;
  }
}
