import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';

/** Waits for the kernel to reach a state that it does not announce. Looks often at first, as most come at once. */
export async function until(what: string, deadlineMs: number, reached: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + deadlineMs;
  for (let pauseMs = 1; !reached(); pauseMs = Math.min(pauseMs * 2, 50)) {
    if (performance.now() > giveUpAt) {
      throw new CoppiceError('timeout', `${what} took longer than ${deadlineMs / 1000} s`, {
        hint: 'A process inside may hang in the kernel; look at `coppice doctor` and at the disk.',
      });
    }
    await sleep(pauseMs);
  }
}
