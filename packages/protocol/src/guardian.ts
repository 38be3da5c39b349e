import { z } from 'zod';
import { nameSchema, refSchema, runIdSchema } from './ids.ts';
import { list } from './route-parts.ts';
import { runStateSchema } from './runs.ts';

/** From the mildest on. remind, refocus and constrain speak to the agent; the others act on the run. */
export const interventionKinds = ['remind', 'refocus', 'constrain', 'pause', 'stop', 'rewind'] as const;
const interventionSchema = z.enum(interventionKinds);
export type InterventionKind = z.infer<typeof interventionSchema>;

const globs = z.array(z.string().min(1).max(500)).min(1).max(100);

const conditionSchema = z.discriminatedUnion('kind', [
  /** The same tool with the same input, so often without another in between. */
  z.strictObject({ kind: z.literal('loop'), times: z.int().min(2).max(1000).default(4) }),
  /** A file that matches one of these was edited. */
  z.strictObject({ kind: z.literal('forbidden_path'), paths: globs }),
  /** The input of a tool holds one of these texts; runs of white space count as one space. */
  z.strictObject({ kind: z.literal('forbidden_command'), commands: globs }),
  /** A file that matches none of these was edited: the task is about these. */
  z.strictObject({ kind: z.literal('drift'), paths: globs }),
  /** So many of the last tool calls failed. */
  z.strictObject({
    kind: z.literal('error_rate'),
    errors: z.int().min(1).max(1000),
    of: z.int().min(1).max(1000),
  }),
  /** Calls to models cost this much, as the gateway counted. */
  z.strictObject({ kind: z.literal('cost'), usd: z.number().min(0).max(1_000_000) }),
  z.strictObject({ kind: z.literal('time'), minutes: z.number().min(0).max(1_000_000) }),
]);

export const guardianRuleSchema = z.strictObject({
  name: nameSchema,
  when: conditionSchema,
  action: interventionSchema,
  /** What the agent is told. */
  message: z.string().min(1).max(4000).optional(),
});
export type GuardianRule = z.infer<typeof guardianRuleSchema>;

/** `guardian.json` in the home. */
export const guardianFileSchema = z.strictObject({
  rules: z
    .array(guardianRuleSchema)
    .max(200)
    .refine((rules) => new Set(rules.map(({ name }) => name)).size === rules.length, 'names must differ'),
  /** A model that looks at the trajectory; without one nobody claims that a run is aligned. */
  judge: z
    .strictObject({
      model: z.string().min(1).max(200),
      /** Below this it intervenes. */
      threshold: z.number().min(0).max(1).default(0.5),
      /** Asked after so many tool calls. */
      every_tools: z.int().min(1).max(10_000).default(20),
      action: interventionSchema.default('refocus'),
    })
    .optional(),
});
export type GuardianFile = z.infer<typeof guardianFileSchema>;

export const guardianFindingSchema = z.object({
  /** The event that the rule met; of time, the last one before. */
  seq: z.int(),
  rule: z.string(),
  detail: z.string(),
  would: interventionSchema,
});
export type GuardianFinding = z.infer<typeof guardianFindingSchema>;

const standing = z.object({ state: runStateSchema, paused: z.boolean(), step: z.int(), seq: z.int() });

export const interventionRecordSchema = z.object({
  id: z.int(),
  run_id: runIdSchema,
  kind: interventionSchema,
  /** The rule, `judge`, or `person`. */
  rule: z.string(),
  detail: z.string(),
  /** Who decided: `guardian`, or the name of the token. Nobody says it of themselves. */
  authority: z.string(),
  state: z.enum(['begun', 'done', 'failed', 'reverted']),
  before: standing,
  after: standing.nullable(),
  message_id: z.string().nullable(),
  error: z.string().nullable(),
  at: z.string(),
  reverted_by: z.string().nullable(),
});
export type Intervention = z.infer<typeof interventionRecordSchema>;

export const interveneSchema = z
  .strictObject({
    kind: interventionSchema,
    message: z.string().min(1).max(4000).optional(),
    reason: z.string().min(1).max(1000),
    /** Of a rewind; the last step unless told otherwise. */
    to: z.int().min(1).optional(),
  })
  .refine(({ kind, message }) => message !== undefined || !['remind', 'constrain'].includes(kind), {
    path: ['message'],
    message: 'is needed: what the agent is told',
  })
  .refine(({ kind, to }) => to === undefined || kind === 'rewind', {
    path: ['to'],
    message: 'is for a rewind',
  });

export const dryRunSchema = z.strictObject({
  /** In place of those in the file. */
  rules: guardianFileSchema.shape.rules.optional(),
});
export const dryRunResultSchema = z.object({ findings: z.array(guardianFindingSchema), events: z.int() });

export const judgementSchema = z.object({
  /** `unavailable`: nobody has judged, and nobody says that all is well. */
  status: z.enum(['scored', 'unavailable']),
  score: z.number().nullable(),
  reason: z.string(),
});
export type Judgement = z.infer<typeof judgementSchema>;

export const conductorSchema = z.object({
  /** Those at work, the most important first. */
  runs: z.array(
    z.object({ run_id: runIdSchema, name: z.string(), priority: z.int(), task: z.string(), files: z.int() }),
  ),
  /** Two at the same ticket, or at the same task. */
  duplicates: z.array(z.object({ runs: z.array(runIdSchema), why: z.string() })),
  /** Two that edited the same files of the same repository or project. */
  conflicts: z.array(z.object({ runs: z.array(runIdSchema), files: z.array(z.string()) })),
});
export type Conductor = z.infer<typeof conductorSchema>;

export const guardianStatusSchema = z.object({
  /** Why the file cannot be used; null where it can, or where there is none. */
  trouble: z.string().nullable(),
  rules: z.array(guardianRuleSchema),
  judge: z.string().nullable(),
});

const run = z.strictObject({ run: refSchema });
const shared = { tag: 'guardian', scope: 'admin', answer: 'json' } as const;

export const guardianRoutes = {
  guardianStatus: {
    ...shared,
    method: 'GET',
    path: '/v1/guardian',
    summary: 'Show the rules that runs are watched by, and errors in their file',
    result: guardianStatusSchema,
  },
  conductor: {
    ...shared,
    method: 'GET',
    path: '/v1/guardian/conductor',
    summary: 'Find runs that do the same work or edit the same files',
    result: conductorSchema,
  },
  intervene: {
    ...shared,
    method: 'POST',
    path: '/v1/runs/:run/interventions',
    summary: 'Intervene in a run by hand; the intervention is recorded',
    params: run,
    body: interveneSchema,
    result: interventionRecordSchema,
    status: 201,
  },
  listInterventions: {
    ...shared,
    method: 'GET',
    path: '/v1/runs/:run/interventions',
    summary: 'List the interventions in a run: who, what, and the state before and after',
    params: run,
    result: list(interventionRecordSchema),
  },
  revertIntervention: {
    ...shared,
    method: 'POST',
    path: '/v1/interventions/:intervention/revert',
    summary: 'Undo an intervention: the run returns to the step before it',
    params: z.strictObject({ intervention: z.coerce.number().int().min(1).max(4_294_967_295) }),
    result: interventionRecordSchema,
  },
  guardianDryRun: {
    ...shared,
    method: 'POST',
    path: '/v1/runs/:run/guardian/dry-run',
    summary: 'Replay a run and show what the guardian would have done',
    params: run,
    body: dryRunSchema,
    result: dryRunResultSchema,
  },
  judgeRun: {
    ...shared,
    method: 'POST',
    path: '/v1/runs/:run/guardian/judge',
    summary: 'Have the configured model score the trajectory against the task',
    params: run,
    result: judgementSchema,
  },
} as const;
