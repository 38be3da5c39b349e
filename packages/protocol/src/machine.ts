import { z } from 'zod';
import { nameSchema, sandboxIdSchema, tokenIdSchema } from './ids.ts';

export const scopeSchema = z.union([
  z.literal('admin'),
  z.string().regex(/^sandbox:sb_[0-9a-hjkmnp-tv-z]{26}$/, 'must be `admin` or `sandbox:<id>`'),
]);
export const createTokenSchema = z.strictObject({
  name: nameSchema,
  scope: scopeSchema.default('admin'),
  expires_in_s: z.int().min(1).max(315_360_000).optional(),
});
export const tokenSchema = z.object({
  id: tokenIdSchema,
  name: z.string(),
  scope: scopeSchema,
  created_at: z.string(),
  expires_at: z.string().nullable(),
  last_used_at: z.string().nullable(),
});
export type Token = z.infer<typeof tokenSchema>;
/** The secret is shown once. */
export const createdTokenSchema = tokenSchema.extend({ secret: z.string() });

/** One of type `events.lost` stands for those `from`–`to` that are no longer kept. */
export const eventSchema = z.object({
  seq: z.number(),
  at: z.string(),
  type: z.string(),
  sandbox_id: sandboxIdSchema.nullable(),
  data: z.record(z.string(), z.unknown()),
});
export type Event = z.infer<typeof eventSchema>;
const eventFilter = {
  /** 0: all that are kept. */
  after: z.coerce.number().int().min(0).default(0),
  sandbox: z.string().max(128).optional(),
  type: z.string().max(64).optional(),
};
export const eventStreamQuery = z.strictObject(eventFilter);
export const eventsQuery = z.strictObject({
  ...eventFilter,
  limit: z.coerce.number().int().min(1).max(10_000).default(1000),
});
export const eventListSchema = z.object({ events: z.array(eventSchema), last_seq: z.number() });

export const healthSchema = z.object({
  status: z.enum(['ok', 'degraded']),
  /** What is wrong, by name; the doctor says it in full. */
  problems: z.array(z.string()),
  version: z.string(),
  uptime_s: z.number(),
  sandboxes: z.number(),
});
export const findingSchema = z.object({
  severity: z.enum(['error', 'warning', 'info']),
  check: z.string(),
  message: z.string(),
  fix: z.string(),
});
export const doctorSchema = z.object({
  healthy: z.boolean(),
  engine: z.string(),
  driver: z.string(),
  drivers: z.record(z.string(), z.object({ usable: z.boolean(), detail: z.string() })),
  findings: z.array(findingSchema),
});
export type Doctor = z.infer<typeof doctorSchema>;

export const problemSchema = z.object({
  type: z.string(),
  title: z.string(),
  status: z.number(),
  code: z.string(),
  detail: z.string(),
  hint: z.string(),
  retryable: z.boolean(),
  details: z.record(z.string(), z.unknown()).optional(),
});
export type Problem = z.infer<typeof problemSchema>;
export const emptySchema = z.object({});
