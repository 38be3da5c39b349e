import type { RunHealth } from '@coppice/protocol';

export interface PulseLimits {
  /** A heartbeat is due this often. */
  readonly intervalMs: number;
  readonly degradedAfter: number;
  readonly failedAfter: number;
  /** Without any event and any call to a model. */
  readonly stuckMs: number;
}

export interface Pulse {
  readonly health: RunHealth['health'];
  readonly reason: string;
  readonly missed: number;
}

/**
 * How a run is, by what was due: an interval in which no heartbeat came is a miss, whoever looked or did not look in it. So a daemon
 * that checks often counts no more misses than one that checks seldom.
 */
export function pulseOf(
  seen: { readonly beatMs: number; readonly eventMs: number; readonly openCalls: number },
  nowMs: number,
  limits: PulseLimits,
): Pulse {
  const missed = Math.max(0, Math.floor((nowMs - seen.beatMs) / limits.intervalMs) - 1);
  const silence = `no heartbeat for ${missed} intervals of ${limits.intervalMs / 1000} s`;
  if (missed >= limits.failedAfter) return { health: 'failed', reason: silence, missed };
  if (missed >= limits.degradedAfter) return { health: 'degraded', reason: silence, missed };
  const idleMs = nowMs - seen.eventMs;
  if (seen.openCalls === 0 && idleMs >= limits.stuckMs)
    return { health: 'stuck', reason: `nothing has happened for ${Math.floor(idleMs / 1000)} s`, missed };
  return { health: 'well', reason: 'its process is alive', missed };
}
