import { z } from 'zod';
import { parseDestination, secretNamePattern } from './destinations.ts';
import { sandboxRefSchema } from './references.ts';

export const secretNameSchema = z
  .string()
  .regex(secretNamePattern, 'must be a name of letters, digits, dots and dashes');

/** A name, `*.name` or `name:port`. Secrets go over TLS alone. */
const secretHostSchema = z
  .string()
  .max(300)
  .superRefine((host, context) => {
    const parsed = parseDestination(host);
    const isName = 'kind' in parsed && parsed.kind === 'names' && parsed.rules.length === 1;
    if (!isName || parsed.rules[0]!.pattern === '*' || parsed.rules[0]!.ports.join() === '80')
      context.addIssue({ code: 'custom', message: 'must be a name, *.name or name:port', input: host });
  });

const headerName = z.string().regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the name of a header');

/** A repository by its path, or several with `*` at the end, and the branches that may be pushed to: none, and it is fetched alone. */
const gitRuleSchema = z.strictObject({
  repository: z
    .string()
    .regex(/^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_./-]{0,200}\*?$/, 'must be a path such as me/app or me/*'),
  push: z
    .array(
      z.string().regex(/^(?!.*\.\.)[A-Za-z0-9_./*-]{1,200}$/, 'must be a branch, * at its end for any rest'),
    )
    .max(64)
    .default([]),
});

/** Where a secret is put into requests. */
export const secretUseSchema = z.strictObject({
  hosts: z.array(secretHostSchema).min(1).max(64),
  /** Empty: all. */
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/, 'must be a method such as GET'))
    .max(16)
    .default([]),
  /** Paths that it is used for, with `*` at the end for any rest. Empty: all. */
  paths: z
    .array(z.string().regex(/^\/[\x21-\x7e]{0,500}$/, 'must begin with a slash'))
    .max(64)
    .default([]),
  /** With rules here its hosts are for git alone. */
  git: z.array(gitRuleSchema).max(64).default([]),
  place: z.discriminatedUnion('kind', [
    /** `{}` in `format` stands for the value. */
    z.strictObject({
      kind: z.literal('header'),
      name: headerName,
      format: z
        .string()
        .max(200)
        .regex(/^[\x20-\x7e]*\{\}[\x20-\x7e]*$/, 'must hold {}, which stands for the value')
        .default('{}'),
    }),
    z.strictObject({
      kind: z.literal('basic'),
      user: z.string().regex(/^[\x21-\x39\x3b-\x7e]{0,200}$/, 'must be a name without a colon'),
    }),
    z.strictObject({
      kind: z.literal('query'),
      name: z.string().regex(/^[A-Za-z0-9_.-]{1,64}$/, 'must be the name of a parameter'),
    }),
  ]),
});
export type SecretUse = z.infer<typeof secretUseSchema>;

export const setSecretSchema = z
  .strictObject({
    /** It goes into a header, so it is one line. */
    value: z
      .string()
      .min(1)
      .max(16_384)
      .regex(/^[\x20-\x7e]+$/, 'must be one line of printable ASCII'),
    /** Where it is put into requests of sandboxes that may use it. Left out: as it was; null: into none. */
    use: secretUseSchema.nullable().optional(),
  })
  .refine(({ value, use }) => use === undefined || use === null || value.length >= 8, {
    message: 'must have 8 characters at least: a shorter one cannot be told apart in answers',
    path: ['value'],
  });
export const secretSchema = z.object({
  name: z.string(),
  changed_ms: z.int(),
  use: secretUseSchema.nullable().default(null),
});
export type Secret = z.infer<typeof secretSchema>;

/** What a run, an agent, a project or a model is called. */
export const labelSchema = z
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
  sandbox: sandboxRefSchema.optional(),
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

export const budgetActions = ['refuse', 'pause', 'stop'] as const;

export const setBudgetSchema = z.strictObject({
  scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
  /** Whose it is; empty for the home, which is all. A sandbox by name or id. */
  name: labelSchema.or(z.literal('')).default(''),
  /** In all, or on each day of UTC. */
  period: z.enum(['ever', 'day']).default('ever'),
  tokens: limitSchema,
  /** Millionths of a US dollar. */
  micros: limitSchema,
  /** What happens to its sandboxes when it is used up. Calls are refused in any case. */
  action: z.enum(budgetActions).default('refuse'),
});

export const budgetSchema = z.object({
  scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
  name: z.string(),
  period: z.enum(['ever', 'day']),
  tokens: z.int().nullable(),
  micros: z.int().nullable(),
  action: z.enum(budgetActions),
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
