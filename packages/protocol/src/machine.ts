import { z } from 'zod';
import { defaultProject, nameSchema, sandboxIdSchema, tokenIdSchema } from './ids.ts';
import { sandboxRefSchema } from './references.ts';

export const scopeSchema = z
  .string()
  .regex(
    /^(admin|project:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}|sandbox:sb_[0-9a-hjkmnp-tv-z]{26}|run:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}|branch:rp_[0-9a-hjkmnp-tv-z]{26}:[A-Za-z0-9][A-Za-z0-9._/@+-]{0,199})$/,
    'must be `admin`, `project:<name>`, `sandbox:<id>`, `run:<id>` or `branch:<id of a repository>:<branch>`',
  );
export const roleSchema = z.enum(['full', 'read']);

/** The most that may be there at once of what the tokens of one person made; null or left out: no limit of its own. */
const quotaFields = {
  sandboxes: z.int().min(0).max(1_000_000),
  /** Promised to them together, running or not. */
  memory_mb: z.int().min(0).max(1_000_000_000),
  disk_mb: z.int().min(0).max(1_000_000_000_000),
  snapshots: z.int().min(0).max(1_000_000),
};
export const quotaSchema = z.strictObject({
  sandboxes: quotaFields.sandboxes.nullable().default(null),
  memory_mb: quotaFields.memory_mb.nullable().default(null),
  disk_mb: quotaFields.disk_mb.nullable().default(null),
  snapshots: quotaFields.snapshots.nullable().default(null),
});
export type Quota = z.infer<typeof quotaSchema>;

export const createTokenSchema = z
  .strictObject({
    name: nameSchema,
    scope: scopeSchema.default(`project:${defaultProject}`),
    /** `read` looks only: it changes nothing and runs nothing. */
    role: roleSchema.default('full'),
    /** Whose it is. Tokens of one person share what they made and its quota. */
    person: nameSchema.optional(),
    quota: quotaSchema.optional(),
    expires_in_s: z.int().min(1).max(315_360_000).optional(),
  })
  .refine(({ quota, scope }) => quota === undefined || scope.startsWith('project:'), {
    path: ['quota'],
    message: 'is for tokens of a project',
  });
export const tokenSchema = z.object({
  id: tokenIdSchema,
  name: z.string(),
  scope: scopeSchema,
  role: roleSchema,
  person: z.string().nullable(),
  quota: quotaSchema.nullable(),
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
  sandbox: sandboxRefSchema.optional(),
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
