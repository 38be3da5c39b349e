import { z } from 'zod';

export const secretNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, 'must be a name of letters, digits, dots and dashes');

export const setSecretSchema = z.strictObject({
  /** It goes into a header, so it is one line. */
  value: z
    .string()
    .min(1)
    .max(16_384)
    .regex(/^[\x20-\x7e]+$/, 'must be one line of printable ASCII'),
});
export const secretSchema = z.object({ name: z.string(), changed_ms: z.int() });
export type Secret = z.infer<typeof secretSchema>;

/** What a run, an agent, a project or a model is called. */
const labelSchema = z
  .string()
  .regex(/^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:@+/-]{0,199}$/, 'must be a name without spaces');

export const costKeys = [
  'sandbox',
  'run',
  'agent',
  'project',
  'model',
  'upstream',
  'outcome',
  'day',
] as const;
export type CostKey = (typeof costKeys)[number];

export const costsQuery = z.strictObject({
  /** What to sum by, with commas between; nothing: the total alone. */
  by: z
    .string()
    .max(200)
    .default('')
    .refine(
      (text) => text === '' || text.split(',').every((key) => (costKeys as readonly string[]).includes(key)),
      `must be some of ${costKeys.join(', ')}, with commas between`,
    ),
  /** Calls that began at this time or later, in milliseconds since 1970. */
  since_ms: z.coerce.number().int().min(0).optional(),
  until_ms: z.coerce.number().int().min(0).optional(),
  sandbox: labelSchema.optional(),
  run: labelSchema.optional(),
  agent: labelSchema.optional(),
  project: labelSchema.optional(),
  model: labelSchema.optional(),
});

const sumsSchema = z.object({
  calls: z.int(),
  /** Begun and not settled yet; they are in no other sum. */
  running: z.int(),
  input: z.int(),
  cache_read: z.int(),
  cache_write5m: z.int(),
  cache_write1h: z.int(),
  output: z.int(),
  reasoning: z.int(),
  /** Millionths of a US dollar, of calls that have a price. */
  cost_micros: z.int(),
  /** Calls without a price, whose tokens are counted alone. */
  unpriced: z.int(),
  /** Calls whose tokens the upstream did not report to the end. */
  estimated: z.int(),
});

export const costsSchema = z.object({
  by: z.array(z.enum(costKeys)),
  /** The dearest first. */
  rows: z.array(sumsSchema.extend({ key: z.record(z.string(), z.string().nullable()) })),
  total: sumsSchema,
});
export type Costs = z.infer<typeof costsSchema>;

const limitSchema = z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable().default(null);

export const setBudgetSchema = z.strictObject({
  scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
  /** Whose it is; empty for the home, which is all. A sandbox by name or id. */
  name: labelSchema.or(z.literal('')).default(''),
  /** In all, or on each day of UTC. */
  period: z.enum(['ever', 'day']).default('ever'),
  tokens: limitSchema,
  /** Millionths of a US dollar. */
  micros: limitSchema,
});

export const budgetSchema = z.object({
  scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
  name: z.string(),
  period: z.enum(['ever', 'day']),
  tokens: z.int().nullable(),
  micros: z.int().nullable(),
  spent_tokens: z.int(),
  spent_micros: z.int(),
  /** Held by calls that run. */
  held_tokens: z.int(),
  held_micros: z.int(),
});
export type Budget = z.infer<typeof budgetSchema>;

export const removeBudgetQuery = z.strictObject({
  scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
  name: labelSchema.or(z.literal('')).default(''),
  period: z.enum(['ever', 'day']).default('ever'),
});
