import { z } from 'zod';
import { projectNameSchema, sandboxRefSchema, snapshotRefSchema } from './references.ts';
import { webhookSecretSchema, webhookUrlSchema } from './webhooks.ts';

/** What people call a project or an agent: a line of text, as it is shown and never a path. */
const titleSchema = z
  .string()
  .trim()
  .min(1)
  .max(120)
  .regex(/^[^\p{Cc}\p{Cf}]+$/u, 'must be one line of text');
const textSchema = z.string().max(4000);
/** In dollars, to the millionth. */
const dollarsSchema = z.number().min(-1e9).max(1e9);
const amountSchema = z.number().min(0).max(1e9);
const metricNameSchema = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be a name of small letters, digits and `_`');
export const agentTypeNameSchema = metricNameSchema;
const secondsSchema = z.int().min(1).max(31_536_000);
/** Checked against the schema of the agent's type. */
const configSchema = z.record(z.string().max(128), z.json());

/** An id, or the name that people gave. */
const byNameSchema = z
  .string()
  .min(1)
  .max(120)
  .regex(/^[^\p{Cc}\p{Cf}/]+$/u, 'must be an id or a name');
export const projectParams = z.strictObject({ project: projectNameSchema });
export const projectAgentParams = z.strictObject({ project: projectNameSchema, agent: byNameSchema });
export const projectExperimentParams = z.strictObject({
  project: projectNameSchema,
  experiment: z.coerce.number().int().min(1),
});
export const projectSnapshotParams = z.strictObject({
  project: projectNameSchema,
  snapshot: z.coerce.number().int().min(1),
});
export const productionAgentParams = z.strictObject({ agent: byNameSchema });

const projectLimits = {
  /** What the agents of the project may cost in all; null for no cap. */
  cap_usd: amountSchema.nullable(),
  /** How long the project may go on from now; then its agents are ended. Null for no end. */
  time_limit_s: secondsSchema.nullable(),
};

export const createProjectSchema = z.strictObject({
  name: titleSchema,
  description: textSchema.default(''),
  cap_usd: projectLimits.cap_usd.optional(),
  time_limit_s: projectLimits.time_limit_s.optional(),
});
export const limitProjectSchema = z
  .strictObject({
    cap_usd: projectLimits.cap_usd.optional(),
    time_limit_s: projectLimits.time_limit_s.optional(),
  })
  .refine((given) => Object.keys(given).length > 0, 'must change something');
export const killProjectQuery = z.strictObject({
  /** Also remove everything of it but the ledger. */
  delete: z.enum(['true', 'false']).default('false'),
});

export const deployAgentSchema = z.strictObject({
  type: agentTypeNameSchema,
  name: titleSchema.optional(),
  config: configSchema.default({}),
  /** Start its first run at once. */
  run: z.boolean().default(true),
});
export const changeAgentSchema = z.strictObject({ status: z.enum(['active', 'paused', 'killed']) });

export const reportMetricSchema = z.strictObject({
  /** `revenue` and `cost` are dollars and go to the ledger; anything else is kept as it is. */
  name: metricNameSchema,
  value: dollarsSchema,
  agent: byNameSchema.optional(),
  /** Who says so, where it is not a person at the command line. */
  source: z
    .string()
    .regex(/^[a-z][a-z0-9_.:-]{0,99}$/, 'must be a name such as hand or evaluator:leads')
    .default('hand'),
  /** The same key again changes nothing. */
  key: z.string().min(1).max(200).optional(),
  evidence: textSchema.optional(),
});
export const writeProjectNoteSchema = z.strictObject({
  text: textSchema.min(1),
  agent: byNameSchema.optional(),
});

export const projectMetricsSchema = z.object({
  cost_usd: z.number(),
  revenue_usd: z.number(),
  profit_usd: z.number(),
  /** In percent of the cost; 0 where nothing was spent. */
  roi: z.number(),
  tokens: z.int(),
  agents: z.int(),
  active_agents: z.int(),
  runs: z.int(),
  failed_runs: z.int(),
});
export type ProjectMetrics = z.infer<typeof projectMetricsSchema>;

export const projectStatusSchema = z.enum(['active', 'promoted', 'killed']);
export const projectSchema = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  status: projectStatusSchema,
  workspace: z.string(),
  created_at: z.string(),
  promoted_at: z.string().nullable(),
  cap_usd: z.number().nullable(),
  ends_at: z.string().nullable(),
  /** Why it was ended, where nobody did it by hand. */
  ended_because: z.string().nullable(),
  /** Nothing happened in it for a while: kill or promote it. */
  forgotten: z.boolean(),
  metrics: projectMetricsSchema,
});
export type Project = z.infer<typeof projectSchema>;

export const runExitSchema = z.enum([
  'ok',
  'failed',
  'limit:time',
  'limit:cost',
  'limit:tokens',
  'cancelled',
  'infra',
]);
export type RunExit = z.infer<typeof runExitSchema>;
export const agentRunSchema = z.object({
  id: z.string(),
  agent: z.string(),
  state: z.enum(['starting', 'running', 'ended']),
  exit: runExitSchema.nullable(),
  /** What it said or why it ended, in short. */
  summary: z.string(),
  sandbox: z.string().nullable(),
  /** The state that it left, to look into or to grow from. */
  snapshot: z.string().nullable(),
  started_at: z.string(),
  ended_at: z.string().nullable(),
  attempt: z.int(),
});
export type AgentRun = z.infer<typeof agentRunSchema>;

export const projectAgentSchema = z.object({
  id: z.string(),
  name: z.string(),
  type: z.string(),
  type_version: z.int(),
  status: z.enum(['active', 'paused', 'killed']),
  config: z.record(z.string(), z.json()),
  token_budget: z.int(),
  schedule_s: z.int().nullable(),
  next_run_at: z.string().nullable(),
  deployed_at: z.string(),
  metrics: projectMetricsSchema,
  last_run: agentRunSchema.nullable(),
});
export type ProjectAgent = z.infer<typeof projectAgentSchema>;

const metricRowSchema = z.object({
  at: z.string(),
  name: z.string(),
  value: z.number(),
  agent: z.string().nullable(),
  run: z.string().nullable(),
  source: z.string(),
});
export const ledgerEntrySchema = z.object({
  id: z.int(),
  at: z.string(),
  project: z.string(),
  agent: z.string().nullable(),
  run: z.string().nullable(),
  kind: z.enum(['cost', 'revenue', 'refund', 'adjustment']),
  usd: z.number(),
  source: z.string(),
  evidence: z.string(),
});
export type LedgerEntry = z.infer<typeof ledgerEntrySchema>;
export const projectLedgerQuery = z.strictObject({
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(1000).default(200),
});

const verdictSchema = z.enum(['better', 'worse', 'inconclusive']);
export const gateResultSchema = z.object({
  metric: z.string(),
  method: z.string(),
  n: z.int(),
  effect: z.number(),
  low: z.number().nullable(),
  high: z.number().nullable(),
  p: z.number().nullable(),
  /** Evidence that may be looked at at any time; 20 and more decides. */
  evidence: z.number().nullable(),
  verdict: verdictSchema,
  /** About how many more cases would decide; null where that is not known or not needed. */
  needs_more: z.int().nullable(),
  said: z.string(),
});
export type GateResult = z.infer<typeof gateResultSchema>;

export const recommendationSchema = z.enum(['STRONGLY_RECOMMEND', 'RECOMMEND', 'CONSIDER', 'NOT_READY']);
export type Recommendation = z.infer<typeof recommendationSchema>;
const opinionSchema = z.object({
  judge: z.string(),
  vote: z.enum(['promote', 'hold']),
  reasons: z.string(),
  cost_usd: z.number(),
});
export const projectEvaluationSchema = z.object({
  project: z.string(),
  metrics: projectMetricsSchema,
  criteria: z.array(
    z.object({ name: z.string(), value: z.number(), threshold: z.number(), passed: z.boolean() }),
  ),
  all_passed: z.boolean(),
  recommendation: recommendationSchema,
  /** What the experiments of the project decided. */
  experiments: z.array(
    z.object({ id: z.int(), name: z.string(), variant: z.string(), gate: gateResultSchema }),
  ),
  /** Agents that would go to production. */
  promotable: z.array(z.object({ id: z.string(), name: z.string(), roi: z.number() })),
  council: z.array(opinionSchema).nullable(),
  /** Of all this: what was read is what is promoted. */
  digest: z.string(),
});
export type ProjectEvaluation = z.infer<typeof projectEvaluationSchema>;
export type Opinion = z.infer<typeof opinionSchema>;
export const evaluateProjectSchema = z.strictObject({
  council: z.boolean().default(false),
  /** The model that the judges of the council ask. */
  model: z.string().min(1).max(200).optional(),
});

export const promoteProjectSchema = z.strictObject({
  /** Of the evaluation that was read. */
  digest: z.string().regex(/^[0-9a-f]{64}$/, 'must be the digest of an evaluation'),
});
export const stageSchema = z.enum(['shadow', 'canary', 'live', 'rolled-back']);
export const productionAgentSchema = z.object({
  id: z.string(),
  lane: z.string(),
  name: z.string(),
  type: z.string(),
  type_version: z.int(),
  stage: stageSchema,
  status: z.enum(['active', 'paused', 'killed']),
  config: z.record(z.string(), z.json()),
  token_budget: z.int(),
  schedule_s: z.int().nullable(),
  next_run_at: z.string().nullable(),
  project: z.string(),
  from_agent: z.string(),
  snapshot: z.string().nullable(),
  notes: z.array(z.string()),
  /** The share of runs that failed before it, which the guard holds it against. */
  baseline_failures: z.number(),
  runs: z.int(),
  failed_runs: z.int(),
  cost_usd: z.number(),
  revenue_usd: z.number(),
  promoted_at: z.string(),
  rollback: z
    .object({
      at: z.string(),
      reason: z.string(),
      by: z.string(),
      snapshot: z.string().nullable(),
      replaced_by: z.string().nullable(),
    })
    .nullable(),
});
export type ProductionAgent = z.infer<typeof productionAgentSchema>;
export const promotionSchema = z.object({
  project: z.string(),
  promoted_at: z.string(),
  digest: z.string(),
  agents: z.array(productionAgentSchema),
  /** Whether this call did it; false where it had been done. */
  fresh: z.boolean(),
});
export type Promotion = z.infer<typeof promotionSchema>;
export const rollbackSchema = z.strictObject({ reason: textSchema.min(1).default('by hand') });
export const changeProductionAgentSchema = z.strictObject({
  status: z.enum(['active', 'paused', 'killed']).optional(),
  config: configSchema.optional(),
});

const evaluatorSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('exit-code') }),
  /** Run in a fork of what the trial left; passes with exit code 0, and the last line of its output may be a score. */
  z.strictObject({ kind: z.literal('script'), script: z.string().min(1).max(65_536) }),
  /** Holds what changed in the trial against what may change. */
  z.strictObject({
    kind: z.literal('diff'),
    must_change: z.array(z.string().max(4096)).max(256).default([]),
    may_change: z.array(z.string().max(4096)).max(256).default(['/workspace/**']),
  }),
  z.strictObject({
    kind: z.literal('judge'),
    model: z.string().min(1).max(200),
    brief: z.string().min(1).max(16_384),
  }),
  z.strictObject({ kind: z.literal('person') }),
]);
export type Evaluator = z.infer<typeof evaluatorSchema>;
export const evaluatorSpecSchema = evaluatorSchema;

const variantSchema = z.strictObject({
  name: metricNameSchema,
  /** Over the configuration of the experiment. */
  config: configSchema.default({}),
  prompt: z.string().max(65_536).optional(),
  image: z.string().max(255).optional(),
  snapshot: snapshotRefSchema.optional(),
  time_limit_s: secondsSchema.optional(),
});
export type Variant = z.infer<typeof variantSchema>;
const caseSchema = z.strictObject({
  id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, 'must be a name'),
  /** Given to the agent as the file and the variable of the case. */
  input: z.string().max(65_536).default(''),
  expected: z.string().max(65_536).optional(),
});
export type Case = z.infer<typeof caseSchema>;

export const experimentTemplateSchema = z.enum(['ab', 'best-of-n', 'regression', 'bisect']);
export const startExperimentSchema = z.strictObject({
  name: titleSchema,
  hypothesis: textSchema.default(''),
  /** What to log of an experiment that is done elsewhere; without variants nothing runs. */
  config: configSchema.default({}),
  template: experimentTemplateSchema.default('ab'),
  type: agentTypeNameSchema.optional(),
  /** The first is the baseline. */
  variants: z.array(variantSchema).max(16).default([]),
  cases: z.array(caseSchema).max(1000).default([]),
  epochs: z.int().min(1).max(20).default(1),
  evaluator: evaluatorSchema.default({ kind: 'exit-code' }),
  /** Every trial is a fork of it; one is made from the image of the type where none is given. */
  snapshot: snapshotRefSchema.optional(),
  seed: z.int().min(0).max(4_294_967_295).default(1),
  parallel: z.int().min(1).max(8).default(2),
  /** Stop as soon as the evidence decides, or after every trial. */
  stop: z.enum(['anytime', 'fixed']).default('anytime'),
  /** Best of n: the sandbox that the files of the winner are merged into. */
  merge_into: sandboxRefSchema.optional(),
  /** Bisect: snapshots from a good one to a bad one, oldest first. */
  snapshots: z.array(snapshotRefSchema).max(1000).default([]),
});
export type StartExperiment = z.output<typeof startExperimentSchema>;
export const completeExperimentSchema = z.strictObject({
  results: z.record(z.string().max(128), z.json()).default({}),
  success: z.boolean(),
});
export const scoreTrialSchema = z.strictObject({
  trial: z.int().min(1),
  passed: z.boolean(),
  reason: textSchema.default(''),
});
export const trialSchema = z.object({
  n: z.int(),
  variant: z.string(),
  case: z.string(),
  epoch: z.int(),
  state: z.enum(['pending', 'running', 'waiting', 'done']),
  exit: runExitSchema.nullable(),
  passed: z.boolean().nullable(),
  score: z.number().nullable(),
  cost_usd: z.number(),
  duration_ms: z.int().nullable(),
  attempts: z.int(),
  reason: z.string(),
  snapshot: z.string().nullable(),
});
export type Trial = z.infer<typeof trialSchema>;
export const experimentSchema = z.object({
  id: z.int(),
  project: z.string(),
  name: z.string(),
  hypothesis: z.string(),
  template: experimentTemplateSchema,
  state: z.enum(['logged', 'running', 'done', 'stopped', 'failed']),
  success: z.boolean().nullable(),
  config: z.record(z.string(), z.json()),
  results: z.record(z.string(), z.json()),
  base: z.string().nullable(),
  seed: z.int(),
  started_at: z.string(),
  completed_at: z.string().nullable(),
  failure: z.string().nullable(),
  planned: z.int(),
  trials: z.array(trialSchema),
  variants: z.array(
    z.object({
      name: z.string(),
      n: z.int(),
      passed: z.int(),
      rate: z.number(),
      low: z.number(),
      high: z.number(),
      cost_usd: z.number(),
      mean_ms: z.number(),
      /** Against the baseline; null for the baseline itself. */
      gate: gateResultSchema.nullable(),
    }),
  ),
  winner: z.string().nullable(),
  said: z.string(),
});
export type Experiment = z.infer<typeof experimentSchema>;

export const projectDetailSchema = projectSchema.extend({
  agents: z.array(projectAgentSchema),
  experiments: z.array(experimentSchema.omit({ trials: true, variants: true, config: true, results: true })),
  reported: z.array(metricRowSchema),
  notes: z.array(
    z.object({ at: z.string(), agent: z.string().nullable(), text: z.string(), source: z.string() }),
  ),
});
export type ProjectDetail = z.infer<typeof projectDetailSchema>;

export const compareProjectsQuery = z.strictObject({ a: byNameSchema, b: byNameSchema });
export const projectComparisonSchema = z.object({
  a: projectSchema,
  b: projectSchema,
  differences: z.array(z.object({ metric: z.string(), a: z.number(), b: z.number(), delta: z.number() })),
  /** Failures of runs, second against first. */
  failures: gateResultSchema,
  /** Profit of a run. */
  profit: gateResultSchema,
});
export type ProjectComparison = z.infer<typeof projectComparisonSchema>;

export const takeProjectSnapshotSchema = z.strictObject({ name: titleSchema });
export const projectSnapshotSchema = z.object({
  id: z.int(),
  project: z.string(),
  name: z.string(),
  at: z.string(),
  agents: z.int(),
  sandboxes: z.int(),
});
export type ProjectSnapshot = z.infer<typeof projectSnapshotSchema>;

export const agentTypeSchema = z.object({
  name: z.string(),
  version: z.int(),
  title: z.string(),
  description: z.string(),
  adapter: z.string(),
  needs_model: z.boolean(),
  parameters: z.record(z.string(), z.json()),
  /** Of an agent in production; ten times as much in a project. */
  token_budget: z.int(),
  schedule_s: z.int().nullable(),
});
export type AgentTypeInfo = z.infer<typeof agentTypeSchema>;

export const addNewsTargetSchema = z.strictObject({
  /** A URL that news are posted to, or `mailto:` and an address. */
  url: z.union([
    webhookUrlSchema,
    z
      .string()
      .regex(
        /^mailto:[^\s@<>,;:"()]{1,64}@[A-Za-z0-9.-]{1,190}$/,
        'must be a URL, or mailto: and an address',
      ),
  ]),
  /** What posts are signed with, as Standard Webhooks has it: `whsec_` and base64. Made where none is given, and shown once. */
  secret: webhookSecretSchema.optional(),
});
export const newsTargetSchema = z.object({
  url: z.string(),
  secret: z.string().nullable(),
  created_at: z.string(),
});
export const projectSummarySchema = z.object({
  projects: z.int(),
  active: z.int(),
  promoted: z.int(),
  killed: z.int(),
  agents: z.int(),
  cost_usd: z.number(),
  revenue_usd: z.number(),
  profit_usd: z.number(),
  roi: z.number(),
  forgotten: z.array(z.string()),
});
export type ProjectSummary = z.infer<typeof projectSummarySchema>;
