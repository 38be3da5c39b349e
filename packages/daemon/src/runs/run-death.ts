/** Why a run failed whose sandbox ended by itself. */
export const sandboxDied = 'its sandbox died';

/**
 * Ended from outside, not by itself: killed, out of memory, crashed; of what it started, a shell says so with 128 and the signal. What
 * exits otherwise has decided so. A run that died may be started again: its messages wait for that.
 */
export const hasDied = (reason: string): boolean =>
  reason === sandboxDied || /^it (was ended by signal \d+|exited with (134|137|139))$/.test(reason);
