import { z } from 'zod';
import {
  messageIdSchema,
  nameSchema,
  refSchema,
  runIdSchema,
  sandboxIdSchema,
  snapshotIdSchema,
} from './ids.ts';
import { imageRefSchema } from './images.ts';
import { guestPathSchema } from './processes.ts';
import { projectRefSchema, sandboxRefSchema, snapshotRefSchema } from './references.ts';
import { runEventSchema, runEventTypes } from './run-events.ts';
import {
  driverNameSchema,
  environmentSchema,
  labelsSchema,
  networkPolicySchema,
  sandboxLimits,
} from './sandboxes.ts';

/** A run is an agent at work on a task in a sandbox. One that was cancelled is completed, with that outcome. */
export const runStates = ['pending', 'creating', 'running', 'completing', 'completed', 'failed'] as const;
export const runStateSchema = z.enum(runStates);
export type RunState = z.infer<typeof runStateSchema>;

/** Which state may follow which. From an end only a rewind leads on, and it goes through `creating`. */
export const runSuccessors: Readonly<Record<RunState, readonly RunState[]>> = {
  pending: ['creating', 'completed', 'failed'],
  creating: ['running', 'completed', 'failed'],
  running: ['completing', 'creating', 'completed', 'failed'],
  completing: ['completed', 'creating', 'failed'],
  completed: ['creating'],
  failed: ['creating'],
};
export const hasEnded = (state: RunState): boolean => state === 'completed' || state === 'failed';

export const runOutcomeSchema = z.enum(['succeeded', 'failed', 'cancelled']);
export type RunOutcome = z.infer<typeof runOutcomeSchema>;

/** A profile: which program it is and how it is driven. `command` is any program; `scripted` plays without a key. */
export const agentNameSchema = z
  .string()
  .regex(
    /^[a-z][a-z0-9-]{0,31}$/,
    'must be the name of an agent, such as `codex`, `goose`, `pi` or `command`',
  );
export const adapterNameSchema = z.enum(['command', 'acp', 'pi']);
export type AdapterName = z.infer<typeof adapterNameSchema>;

export const modelNameSchema = z
  .string()
  .regex(/^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:@+/-]{0,199}$/, 'must be the name of a model');

/** An agent that can be started: one that ships, or a file of the operator. */
export const agentTemplateSchema = z.object({
  name: z.string(),
  title: z.string(),
  adapter: adapterNameSchema,
  /** Of a file: the agent that it changes. */
  base: z.string().nullable(),
  file: z.string().nullable(),
  /** Null where it is no program of somebody else. */
  version: z.string().nullable(),
  licence: z.string().nullable(),
  proprietary: z.boolean(),
  /** What has to be in its image, from npm, with exact versions. */
  packages: z.record(z.string(), z.string()),
  model: z.string().nullable(),
  permissions: z.enum(['allow', 'deny']).nullable(),
  image: z.string().nullable(),
  snapshot: z.string().nullable(),
  memory_mb: z.number().nullable(),
  time_s: z.number().nullable(),
});
export type AgentTemplateView = z.infer<typeof agentTemplateSchema>;

const taskSchema = z
  .string()
  .min(1)
  .max(65_536)
  .refine((text) => text.trim() !== '', 'must say something');

export const repositorySchema = z.strictObject({
  /** Where it is cloned from, as git takes it inside the sandbox. */
  url: z
    .string()
    .min(1)
    .max(2048)
    .regex(
      /^(https?:\/\/|ssh:\/\/|git:\/\/|file:\/\/|\/)[^\s\0]+$/,
      'must be a URL of a repository, or a path',
    ),
  /** A branch, a tag or a commit; the default branch unless told otherwise. */
  ref: z
    .string()
    .regex(/^(?!-)(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_./@+-]{0,199}$/, 'must be a branch, a tag or a commit')
    .optional(),
  /** Where to; the working directory of the agent. */
  path: guestPathSchema.default('/workspace'),
});

export const startRunSchema = z.strictObject({
  name: nameSchema.optional(),
  task: taskSchema,
  agent: agentNameSchema.default('command'),
  /** What to start, for the agent `command`. */
  command: z
    .union([z.string().min(1).max(131_072), z.array(z.string().max(131_072)).min(1).max(1024)])
    .optional(),
  model: modelNameSchema.optional(),
  /** A sandbox that is there; otherwise one is made from the fields below and destroyed with the run. */
  sandbox: sandboxRefSchema.optional(),
  image: imageRefSchema.optional(),
  /** Grow the sandbox from this snapshot instead. */
  from: snapshotRefSchema.optional(),
  driver: driverNameSchema.optional(),
  cpus: sandboxLimits.cpus.optional(),
  memory_mb: sandboxLimits.memory_mb.optional(),
  disk_mb: sandboxLimits.disk_mb.optional(),
  pids: sandboxLimits.pids.optional(),
  network: networkPolicySchema.optional(),
  /** Of the agent's process. */
  env: environmentSchema.optional(),
  cwd: guestPathSchema.optional(),
  repo: repositorySchema.optional(),
  project: projectRefSchema.optional(),
  ticket: nameSchema.optional(),
  labels: labelsSchema.optional(),
  /** The run fails when it has worked for so long. */
  timeout_s: z.int().min(1).max(2_592_000).optional(),
  /** Which steps become snapshots: each tool call, each turn, or none. */
  steps: z.enum(['tool', 'turn', 'none']).default('tool'),
  /** Steps keep the agent's process too, where the sandbox's driver can keep memory. */
  step_memory: z.boolean().default(false),
});
export type StartRun = z.infer<typeof startRunSchema>;

export const runResultSchema = z.object({
  outcome: runOutcomeSchema,
  /** Why it ended so. */
  reason: z.string(),
  /** The last thing the agent said, or what it gave as its result. */
  text: z.string(),
  exit_code: z.number().nullable(),
});
export type RunResult = z.infer<typeof runResultSchema>;

export const runSchema = z.object({
  id: runIdSchema,
  name: z.string(),
  state: runStateSchema,
  /** Null until it ends. */
  outcome: runOutcomeSchema.nullable(),
  /** Why it is in that state. */
  reason: z.string(),
  paused: z.boolean(),
  agent: z.string(),
  adapter: adapterNameSchema,
  model: z.string().nullable(),
  task: z.string(),
  /** Null until it has one, and when that is gone. */
  sandbox_id: sandboxIdSchema.nullable(),
  /** Made for the run, and destroyed with it. */
  owns_sandbox: z.boolean(),
  repo: z.object({ url: z.string(), ref: z.string().nullable(), path: z.string() }).nullable(),
  project: z.string().nullable(),
  ticket: z.string().nullable(),
  labels: z.record(z.string(), z.string()),
  /** How often the agent was asked to go on; 0 before its first turn. */
  turn: z.int(),
  /** True while the agent works on a turn. */
  working: z.boolean(),
  last_step: z.int(),
  last_seq: z.int(),
  /** How often the agent's process was started. */
  attempt: z.int(),
  /** The run and the step that it was forked from. */
  parent: z.object({ run_id: runIdSchema, step: z.int() }).nullable(),
  created_at: z.string(),
  started_at: z.string().nullable(),
  ended_at: z.string().nullable(),
});
export type Run = z.infer<typeof runSchema>;

export const runTransitionSchema = z.object({
  number: z.int(),
  from: runStateSchema.nullable(),
  to: runStateSchema,
  reason: z.string(),
  at: z.string(),
});
export type RunTransition = z.infer<typeof runTransitionSchema>;
export const runDetailSchema = runSchema.extend({
  transitions: z.array(runTransitionSchema),
  /** Messages that were accepted and did not reach the agent yet. */
  waiting_messages: z.int(),
});
export type RunDetail = z.infer<typeof runDetailSchema>;

export const listRunsQuery = z.strictObject({
  state: runStateSchema.optional(),
  sandbox: sandboxRefSchema.optional(),
  project: projectRefSchema.optional(),
  /** `key=value` or `key`; several separated by commas must all hold. */
  label: z.string().max(1024).optional(),
  /** The newest first; only those older than this id. */
  before: runIdSchema.optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
});

/** Of whom a message is and what it is; an interrupt also ends the turn. */
export const messageKindSchema = z.enum(['user', 'nudge', 'constraint', 'interrupt']);
/** queue: held until the turn ends. steer: into the turn, the agent's own way. now: the same, and by force where that takes too long. */
export const urgencySchema = z.enum(['queue', 'steer', 'now']);
export type Urgency = z.infer<typeof urgencySchema>;
/**
 * accepted: written down here. sent: the agent took it. delivered: it was in a request of the agent to its model, or the program fetched
 * it. expired: its time was over, or the run ended, before that.
 */
export const messageStateSchema = z.enum(['accepted', 'sent', 'delivered', 'expired']);
export type MessageState = z.infer<typeof messageStateSchema>;

/** Text for an agent: no control characters except tab and line feed. */
const messageTextSchema = z
  .string()
  .min(1)
  .max(16_384)
  .refine((text) => text.trim() !== '', 'must say something')
  .refine((text) => !/[\x00-\x08\x0b-\x1f\x7f]/.test(text), 'holds control characters');

export const tellRunSchema = z.strictObject({
  text: messageTextSchema,
  kind: messageKindSchema.default('user'),
  urgency: urgencySchema.default('steer'),
  /** Of those that wait, the highest goes first; then the oldest. */
  priority: z.int().min(0).max(9).default(5),
  /** Not delivered after so long: it expires. */
  expires_in_s: z.int().min(1).max(2_592_000).optional(),
  /** Who sends it, for people. */
  from: nameSchema.default('user'),
  /** The same key again is the same message: a caller may repeat a call whose answer it did not see. */
  key: nameSchema.optional(),
});
export type TellRun = z.infer<typeof tellRunSchema>;

export const runMessageSchema = z.object({
  id: messageIdSchema,
  run_id: runIdSchema,
  /** Counts within the run, in the order of acceptance. */
  number: z.int(),
  kind: messageKindSchema,
  urgency: urgencySchema,
  priority: z.int(),
  text: z.string(),
  from: z.string(),
  state: messageStateSchema,
  /** How it got there: `steer`, `prompt`, `inbox`; null until it was sent. */
  via: z.string().nullable(),
  accepted_at: z.string(),
  sent_at: z.string().nullable(),
  delivered_at: z.string().nullable(),
  expires_at: z.string().nullable(),
  /** Why it expired. */
  note: z.string().nullable(),
});
export type RunMessage = z.infer<typeof runMessageSchema>;

export const runStepSchema = z.object({
  number: z.int(),
  kind: z.enum(['start', 'tool', 'turn', 'manual']),
  title: z.string(),
  /** The last event that belongs to it. */
  seq: z.int(),
  turn: z.int(),
  at: z.string(),
  /** Null when it was thinned out: rewind to the one before. */
  snapshot_id: snapshotIdSchema.nullable(),
  /** The agent's own process is in it. */
  has_memory: z.boolean(),
});
export type RunStep = z.infer<typeof runStepSchema>;

export const eventTypesText = z
  .string()
  .max(1024)
  .refine(
    (text) => text.split(',').every((type) => /^[a-z_]+\.\*$/.test(type) || type in runEventTypes),
    'must be types of events with commas between; `agent.*` is all of agents',
  );
export const runEventsQuery = z.strictObject({
  after: z.coerce.number().int().min(0).default(0),
  types: eventTypesText.optional(),
});
export const listRunEventsQuery = runEventsQuery.extend({
  limit: z.coerce.number().int().min(1).max(5000).default(1000),
});
export const runEventListSchema = z.object({ events: z.array(runEventSchema), last_seq: z.int() });

/** What somebody wants to read afterwards: without heartbeats and repetitions, oldest first. */
export const trajectoryQuery = z.strictObject({
  /** Only entries that begin after this event. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
});
export const trajectorySchema = z.object({
  entries: z.array(
    z.object({
      /** First and last event that it stands for, folded ones included. */
      from_seq: z.int(),
      to_seq: z.int(),
      event: runEventSchema,
      /** How many events of the same kind it stands for. */
      count: z.int(),
    }),
  ),
  /** How many events were left out as noise up to there. */
  folded: z.int(),
  /** Pass it as `after` for the next page; null: there is no more now. */
  next: z.int().nullable(),
});
export type Trajectory = z.infer<typeof trajectorySchema>;

/** WebSocket: the client subscribes to runs, and again at any time; the daemon sends their events, each run in order. */
export const runSocketRequestSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('subscribe'),
    run: refSchema,
    after: z.int().min(0).default(0),
    types: eventTypesText.optional(),
  }),
  z.strictObject({ type: z.literal('unsubscribe'), run: refSchema }),
]);
export const runSocketMessageSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('subscribed'), run: runIdSchema, after: z.int() }),
  z.object({ type: z.literal('event'), event: runEventSchema }),
  z.object({ type: z.literal('error'), code: z.string(), message: z.string(), hint: z.string() }),
]);

const reasonSchema = z.string().min(1).max(1024);
export const stopRunSchema = z.strictObject({ reason: reasonSchema.default('cancelled') });
export const interruptRunSchema = z.strictObject({ reason: reasonSchema.default('interrupted') });
export const rewindRunSchema = z.strictObject({
  to: z.int().min(0).max(1_000_000_000),
  /** What the agent is told when it goes on from there. */
  message: messageTextSchema.optional(),
});
export const forkRunSchema = z.strictObject({
  /** The last step that has a snapshot unless told otherwise. */
  from: z.int().min(0).max(1_000_000_000).optional(),
  message: messageTextSchema.optional(),
  name: nameSchema.optional(),
});

export const raceRunSchema = z.strictObject({
  /** Run in each fork when it has ended. Of those where it succeeds, the quickest fork wins. */
  judge: z.string().min(1).max(65_536),
  n: z.int().min(2).max(20).default(3),
  /** The last step that has a snapshot unless told otherwise. */
  from: z.int().min(0).max(1_000_000_000).optional(),
  /** What the forks are told: one message for all, or one for each. */
  messages: z.array(messageTextSchema).max(20).default([]),
  /** Merge what the winner changed into the sandbox of the run. */
  merge: z.boolean().default(true),
});
export type RaceRun = z.infer<typeof raceRunSchema>;
const raceEntrySchema = z.object({
  run_id: runIdSchema,
  /** Null until it was judged. */
  outcome: runOutcomeSchema.nullable(),
  /** Of the judge; null where it could not be asked. */
  exit_code: z.number().nullable(),
  /** The end of what the judge wrote. */
  output: z.string(),
  duration_ms: z.number().nullable(),
});
export type RaceEntry = z.infer<typeof raceEntrySchema>;
const raceStateSchema = z.enum(['running', 'done', 'failed']);
export type RaceState = z.infer<typeof raceStateSchema>;
export const raceSchema = z.object({
  run_id: runIdSchema,
  /** Counts within the run. */
  number: z.int(),
  state: raceStateSchema,
  /** Why it is in that state. */
  reason: z.string(),
  from_step: z.int(),
  judge: z.string(),
  entries: z.array(raceEntrySchema),
  /** The fork that won; null where none did, or none yet. */
  winner: runIdSchema.nullable(),
  merged: z.boolean(),
  created_at: z.string(),
  ended_at: z.string().nullable(),
});
export type Race = z.infer<typeof raceSchema>;

export const stepRunSchema = z.strictObject({ title: z.string().min(1).max(200).default('by hand') });

export const compareRunsQuery = z.strictObject({ a: refSchema, b: refSchema });
export const runComparisonSchema = z.object({
  a: runIdSchema,
  b: runIdSchema,
  /** The last step that both grew from; null: they have nothing in common. */
  common: z.object({ run_id: runIdSchema, step: z.int() }).nullable(),
  steps: z.array(z.object({ number: z.int(), a: runStepSchema.nullable(), b: runStepSchema.nullable() })),
  files: z.array(z.object({ path: z.string(), change: z.string() })),
  /** False: one of the two has nothing on disk any more. */
  compared_files: z.boolean(),
});
export type RunComparison = z.infer<typeof runComparisonSchema>;

export const bodyIdSchema = z.string().regex(/^[0-9a-f]{64}$/, 'must be the id of a body');

/* What a program in the sandbox calls with the token of its run: it speaks of its own run, and of no other. */

export const insideMessagesQuery = z.strictObject({
  /** Only messages with a higher number. Those up to this one count as delivered. */
  after: z.coerce.number().int().min(0).default(0),
  wait_s: z.coerce.number().min(0).max(25).default(0),
});
export const insideMessageSchema = runMessageSchema.pick({
  id: true,
  number: true,
  kind: true,
  urgency: true,
  text: true,
  from: true,
});
export const heartbeatSchema = z.strictObject({ status: z.string().max(200).default('alive') });
export const heartbeatAnswerSchema = z.object({
  state: runStateSchema,
  /** The run should come to an end. */
  stop: z.boolean(),
  messages: z.int(),
});
export const doneSchema = z.strictObject({
  success: z.boolean().default(true),
  text: z.string().max(65_536).default(''),
});
