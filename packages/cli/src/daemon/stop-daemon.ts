import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { isAlive } from './running-daemon.ts';

const pollMs = 20;
const patienceMs = 60_000;

/** Asks a daemon to stop and waits until it has. */
export const stopDaemon = async (pid: number, signal: AbortSignal): Promise<void> => {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw new CoppiceError('forbidden', `this user may not stop the daemon (process ${pid})`, {
      hint: 'Run as the user that started it.',
      cause: error,
    });
  }
  const deadlineMs = performance.now() + patienceMs;
  while (isAlive(pid)) {
    signal.throwIfAborted();
    if (performance.now() > deadlineMs) {
      throw new CoppiceError(
        'timeout',
        `the daemon (process ${pid}) has not stopped within ${patienceMs / 1000} s`,
        {
          hint: `Look at its log. As a last resort: kill -9 ${pid}; sandboxes go on and the next start finds them.`,
        },
      );
    }
    await delay(pollMs);
  }
};
