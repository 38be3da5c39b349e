import { z } from 'zod';
import { messageIdSchema, runIdSchema, snapshotIdSchema } from './ids.ts';

/** A text of any length: what is long is cut here, and `ref` names the whole of it (`GET /v1/runs/RUN/bodies/REF`). */
const bodySchema = z.object({
  text: z.string(),
  bytes: z.int(),
  ref: z.string().nullable(),
});
export type EventBody = z.infer<typeof bodySchema>;

/** How much of a text is in the event itself. */
export const inlineBytes = 8192;

const state = z.enum(['pending', 'creating', 'running', 'completing', 'completed', 'failed']);
const text = z.object({ text: bodySchema });
const callId = z.string().max(200);

/**
 * The one vocabulary: what may happen in a run, and what each event says. `inside`: a program in the sandbox may report it itself.
 * Others who add to it add a line here, and nothing else.
 */
export const runEventTypes = {
  'run.state': {
    data: z.object({ from: state.nullable(), to: state, reason: z.string(), outcome: z.string().nullable() }),
  },
  /** Something on the way to an agent at work: the sandbox, the clone, the start. */
  'run.setup': {
    data: z.object({
      stage: z.string(),
      status: z.enum(['started', 'done', 'failed']),
      message: z.string(),
      took_ms: z.int().nullable(),
    }),
  },
  'run.step': {
    data: z.object({
      step: z.int(),
      kind: z.string(),
      title: z.string(),
      snapshot_id: snapshotIdSchema.nullable(),
      has_memory: z.boolean(),
      took_ms: z.int(),
    }),
  },
  'run.paused': { data: z.object({ reason: z.string() }) },
  'run.resumed': { data: z.object({ reason: z.string() }) },
  'run.rewound': { data: z.object({ from_step: z.int(), to_step: z.int(), with_memory: z.boolean() }) },
  'run.forked': { data: z.object({ run_id: runIdSchema, step: z.int() }) },

  'agent.started': {
    data: z.object({
      agent: z.string(),
      version: z.string().nullable(),
      model: z.string().nullable(),
      session: z.string().nullable(),
      attempt: z.int(),
      /** It goes on with a session that it had before. */
      resumed: z.boolean(),
    }),
  },
  'agent.turn_started': { data: z.object({ turn: z.int() }) },
  'agent.turn_ended': { data: z.object({ turn: z.int(), stop_reason: z.string() }) },
  'agent.message': { data: text, inside: true },
  'agent.thinking': { data: text, inside: true },
  'agent.output': { data: z.object({ stream: z.enum(['stdout', 'stderr']), text: bodySchema }) },
  'agent.tool_use': {
    data: z.object({
      call_id: callId,
      tool: z.string().max(200),
      /** read, edit, delete, move, search, execute, think, fetch, other. */
      kind: z.string().max(32),
      title: z.string().max(1000),
      input: bodySchema,
    }),
    inside: true,
  },
  'agent.tool_result': {
    data: z.object({ call_id: callId, tool: z.string().max(200), ok: z.boolean(), output: bodySchema }),
    inside: true,
  },
  'agent.file_edited': {
    data: z.object({
      path: z.string().max(4096),
      change: z.enum(['created', 'modified', 'deleted']),
      added: z.int().nullable(),
      removed: z.int().nullable(),
      diff: bodySchema,
    }),
    inside: true,
  },
  'agent.plan': {
    data: z.object({
      entries: z.array(z.object({ text: z.string().max(1000), status: z.string().max(32) })).max(200),
    }),
    inside: true,
  },
  'agent.progress': {
    data: z.object({ message: z.string().max(4096), percent: z.number().min(0).max(100).nullable() }),
    inside: true,
  },
  /** Whatever else a program has to say. */
  'agent.custom': {
    data: z.object({
      name: z.string().regex(/^[a-zA-Z0-9_.]{1,100}$/, 'must be a name of letters, digits, `_` and `.`'),
      data: z.record(z.string(), z.unknown()),
    }),
    inside: true,
  },
  'agent.waiting': { data: z.object({ reason: z.string().max(1000) }), inside: true },
  'agent.message_injected': {
    data: z.object({ message_id: messageIdSchema, via: z.string(), latency_ms: z.int() }),
  },
  'agent.interrupted': { data: z.object({ reason: z.string(), ended_processes: z.int() }) },
  'agent.heartbeat': {
    data: z.object({
      alive: z.boolean(),
      /** Of the agent's event loop; null: it did not answer, or cannot be asked. */
      ping_ms: z.number().nullable(),
      open_model_calls: z.int(),
      last_event_age_ms: z.int(),
      status: z.string().max(200),
    }),
  },
  'agent.context': { data: z.object({ used: z.int(), size: z.int() }) },
  'agent.error': { data: z.object({ message: bodySchema, fatal: z.boolean() }), inside: true },
  'agent.exited': { data: z.object({ exit_code: z.int().nullable(), signal: z.int().nullable() }) },
  'agent.restarted': { data: z.object({ attempt: z.int(), reason: z.string() }) },
  'agent.completed': { data: z.object({ success: z.boolean(), text: bodySchema }) },

  'message.accepted': {
    data: z.object({
      message_id: messageIdSchema,
      kind: z.string(),
      urgency: z.string(),
      from: z.string(),
      text: bodySchema,
    }),
  },
  'message.sent': { data: z.object({ message_id: messageIdSchema, via: z.string() }) },
  'message.delivered': {
    data: z.object({ message_id: messageIdSchema, via: z.string(), latency_ms: z.int() }),
  },
  'message.expired': { data: z.object({ message_id: messageIdSchema, note: z.string() }) },

  'guardian.intervened': {
    data: z.object({
      intervention: z.int(),
      kind: z.string(),
      rule: z.string(),
      detail: z.string(),
      authority: z.string(),
    }),
  },
  'guardian.reverted': { data: z.object({ intervention: z.int(), to_step: z.int() }) },
  'guardian.judged': {
    data: z.object({
      status: z.enum(['scored', 'unavailable']),
      score: z.number().nullable(),
      reason: z.string(),
    }),
  },
  'health.changed': {
    data: z.object({
      from: z.enum(['well', 'degraded', 'stuck', 'failed']),
      to: z.enum(['well', 'degraded', 'stuck', 'failed']),
      reason: z.string(),
    }),
  },
  /** It cannot be helped by itself any more: a person has to look. */
  'health.escalated': { data: z.object({ reason: z.string(), restarts: z.int() }) },
  'health.quarantined': {
    data: z.object({ reason: z.string(), by: z.string(), evidence: z.string().nullable() }),
  },
  'health.cleared': { data: z.object({ reason: z.string(), by: z.string() }) },

  /** What the gateway saw of a call to a model. */
  'usage.call': {
    data: z.object({
      call: z.string(),
      model: z.string(),
      outcome: z.string(),
      input: z.int(),
      output: z.int(),
      cost_micros: z.int().nullable(),
      estimated: z.boolean(),
    }),
  },
  'usage.refused': { data: z.object({ reason: z.string(), message: z.string() }) },
} as const satisfies Record<string, { readonly data: z.ZodObject; readonly inside?: true }>;

export type RunEventType = keyof typeof runEventTypes;
export type RunEventData<T extends RunEventType = RunEventType> = z.infer<(typeof runEventTypes)[T]['data']>;
const names = Object.keys(runEventTypes) as [RunEventType, ...RunEventType[]];

/** Sequenced within its run from 1 without a gap, and kept as long as the run. */
export const runEventSchema = z.object({
  seq: z.int(),
  run_id: runIdSchema,
  at: z.string(),
  type: z.enum(names),
  /** agent: the agent or a program beside it says so; daemon and gateway: they saw it; user: somebody did it. */
  source: z.enum(['agent', 'daemon', 'gateway', 'user']),
  turn: z.int(),
  data: z.record(z.string(), z.unknown()),
});
type Base = Omit<z.infer<typeof runEventSchema>, 'type' | 'data'>;
export type RunEventOf<T extends RunEventType> = Base & { readonly type: T; readonly data: RunEventData<T> };
/** By its type: after `event.type === 'agent.message'` the data is known. */
export type RunEvent = { [T in RunEventType]: RunEventOf<T> }[RunEventType];
export type RunEventSource = RunEvent['source'];

/** As it is given, before long texts are cut. */
export type EventDraft<T extends RunEventType> = {
  readonly [K in keyof RunEventData<T>]: RunEventData<T>[K] extends EventBody ? string : RunEventData<T>[K];
};

/** Which fields of an event are texts of any length. */
export const bodyFields = (type: RunEventType): string[] =>
  Object.entries(runEventTypes[type].data.shape as Record<string, z.ZodType>)
    .filter(([, schema]) => schema === bodySchema)
    .map(([name]) => name);

/** What a program in the sandbox may report; a text is given as it is, and cut here. */
export const insideEventSchema = z.strictObject({
  type: z.enum(names.filter((name) => 'inside' in runEventTypes[name]) as [RunEventType, ...RunEventType[]]),
  data: z.record(z.string(), z.unknown()).default({}),
});
export const acceptedEventSchema = z.object({ seq: z.int() });
