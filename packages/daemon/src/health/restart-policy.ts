export interface RestartLimits {
  readonly perHour: number;
  readonly cooldownMs: number;
}

export type RestartDecision =
  | { readonly decision: 'restart' }
  | { readonly decision: 'wait'; readonly untilMs: number }
  | { readonly decision: 'escalate' };

const hourMs = 3_600_000;

/** Whether a run may be restarted now, by the restarts that are on record: so neither a crash nor an upgrade of the daemon starts anew. */
export function mayRestart(pastMs: readonly number[], nowMs: number, limits: RestartLimits): RestartDecision {
  const recent = pastMs.filter((atMs) => atMs > nowMs - hourMs);
  if (recent.length >= limits.perHour) return { decision: 'escalate' };
  const last = recent.at(-1);
  if (last !== undefined && nowMs - last < limits.cooldownMs)
    return { decision: 'wait', untilMs: last + limits.cooldownMs };
  return { decision: 'restart' };
}
