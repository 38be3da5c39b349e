import { z } from 'zod';
import { refSchema, runIdSchema, webhookIdSchema } from './ids.ts';
import { emptySchema } from './machine.ts';
import type { Route } from './route.ts';
import { list } from './route-parts.ts';
import { eventTypesText } from './runs.ts';
import { webhookSecretSchema, webhookUrlSchema } from './webhooks.ts';

export const addRunWebhookSchema = z.strictObject({
  url: webhookUrlSchema,
  /** Only events of this run; otherwise of every run, from now on. */
  run: refSchema.optional(),
  /** Types of events with commas between; `agent.*` is all of agents. All types unless told otherwise. */
  types: eventTypesText.optional(),
  /** Events of the run after this number; those that come from now on unless told otherwise. 0: from its beginning. */
  after: z.int().min(0).optional(),
  /** Made where none is given, and shown once. */
  secret: webhookSecretSchema.optional(),
});

export const resumeRunWebhookSchema = z.strictObject({
  /** From which event on, for a webhook of one run; from the first that was not taken unless told otherwise. */
  after: z.int().min(0).optional(),
});

export const runWebhookSchema = z.object({
  id: webhookIdSchema,
  url: z.string(),
  run_id: runIdSchema.nullable(),
  types: z.string().nullable(),
  /** `stopped`: the receiver failed too often or wants nothing more; nothing is sent until it is resumed. */
  state: z.enum(['active', 'stopped']),
  /** Why the last try failed; null after one that was taken. */
  failure: z.string().nullable(),
  /** How many events wait to be sent. */
  waiting: z.int(),
  /** The number of the last event that was taken or passed over, for a webhook of one run. */
  last_seq: z.int().nullable(),
  /** Only in the answer that makes it. */
  secret: z.string().nullable(),
  created_at: z.string(),
});
export type RunWebhook = z.infer<typeof runWebhookSchema>;

const shared = { tag: 'runs', scope: 'admin', answer: 'json' } as const;
const webhook = z.strictObject({ webhook: webhookIdSchema });

/** Events of runs, posted to a program. */
export const runWebhookRoutes = {
  listRunWebhooks: {
    ...shared,
    method: 'GET',
    path: '/v1/run-webhooks',
    summary: 'List webhooks for run events, and how many events wait for each',
    result: list(runWebhookSchema),
  },
  addRunWebhook: {
    ...shared,
    method: 'POST',
    path: '/v1/run-webhooks',
    summary: 'Post events of one run or of all to a URL, in order, signed as Standard Webhooks specifies',
    body: addRunWebhookSchema,
    result: runWebhookSchema,
    status: 201,
  },
  resumeRunWebhook: {
    ...shared,
    method: 'POST',
    path: '/v1/run-webhooks/:webhook/resume',
    summary: 'Resume a webhook that was stopped, or send events again from a sequence number',
    params: webhook,
    body: resumeRunWebhookSchema,
    result: runWebhookSchema,
  },
  removeRunWebhook: {
    ...shared,
    method: 'DELETE',
    path: '/v1/run-webhooks/:webhook',
    summary: 'Remove a webhook for run events',
    params: webhook,
    result: emptySchema,
  },
} as const satisfies Record<string, Route>;
