import { z } from 'zod';
import { refSchema, runIdSchema } from './ids.ts';
import { list } from './route-parts.ts';

export const healthStates = ['well', 'degraded', 'stuck', 'failed'] as const;

export const runHealthSchema = z.object({
  run_id: runIdSchema,
  name: z.string(),
  health: z.enum(healthStates),
  reason: z.string(),
  /** Since its process was last seen alive; null before the first time. */
  last_heartbeat_age_ms: z.int().nullable(),
  /** Intervals in which a heartbeat was due and none came. */
  missed: z.int(),
  last_event_age_ms: z.int(),
  open_model_calls: z.int(),
  /** In the last hour. */
  restarts: z.int(),
  quarantine: z
    .object({ reason: z.string(), by: z.string(), at: z.string(), evidence: z.string().nullable() })
    .nullable(),
});
export type RunHealth = z.infer<typeof runHealthSchema>;

const reason = z.string().trim().min(1).max(1000);
export const quarantineSchema = z.strictObject({ reason });

const run = z.strictObject({ run: refSchema });
const shared = { tag: 'health', scope: 'admin', answer: 'json' } as const;

export const runHealthRoutes = {
  runsHealth: {
    ...shared,
    method: 'GET',
    path: '/v1/runs/health',
    summary: 'Show the health of active runs: heartbeats, progress, restarts',
    result: list(runHealthSchema),
  },
  quarantineRun: {
    ...shared,
    method: 'POST',
    path: '/v1/runs/:run/quarantine',
    summary: 'Cut the network of a run, freeze it, and keep evidence',
    params: run,
    body: quarantineSchema,
    result: runHealthSchema,
  },
  clearRun: {
    ...shared,
    method: 'POST',
    path: '/v1/runs/:run/quarantine/clear',
    summary: 'Let a run out of quarantine, with a reason',
    params: run,
    body: quarantineSchema,
    result: runHealthSchema,
  },
} as const;
