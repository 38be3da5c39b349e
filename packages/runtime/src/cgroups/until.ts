import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';

/** Most states come within this: so long it is looked at again and again, as no timer is that short. */
const eagerMs = 0.5;

/** Waits for the kernel to reach a state that it does not announce. */
export async function until(what: string, deadlineMs: number, reached: () => boolean): Promise<void> {
  const beganMs = performance.now();
  for (let pauseMs = 1; !reached(); ) {
    const waitedMs = performance.now() - beganMs;
    if (waitedMs > deadlineMs) {
      throw new CoppiceError('timeout', `${what} took longer than ${deadlineMs / 1000} s`, {
        hint: 'A process inside may hang in the kernel; look at `coppice doctor` and at the disk.',
      });
    }
    if (waitedMs < eagerMs) {
      await nextTurn();
    } else {
      await sleep(pauseMs);
      pauseMs = Math.min(pauseMs * 2, 50);
    }
  }
}
