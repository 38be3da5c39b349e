import { z } from 'zod';
import { budgetActions, labelSchema } from './gateway.ts';
import { answers } from './sandboxes.ts';

/** For whom the calls of a sandbox to models count, beside the sandbox itself. */
export const callerSchema = z.strictObject({
  run: labelSchema.optional(),
  agent: labelSchema.optional(),
  project: labelSchema.optional(),
});
export type Caller = z.infer<typeof callerSchema>;

/** An id in `<coppice-message id="...">`. */
export const messageIdPattern = /^[A-Za-z0-9_.:-]{1,64}$/;

const ofCall = {
  sandbox: z.string(),
  run: z.string().nullable(),
  agent: z.string().nullable(),
  project: z.string().nullable(),
  /** The same for all tries of one request of the agent. */
  call: z.string(),
  /** From 1 on: a request that failed is sent again, or to the next upstream. */
  attempt: z.int(),
  model: z.string(),
  upstream: z.string(),
};

const tokens = z.int().min(0);

export const usageSchema = z.object({
  /** Neither read from a cache nor written to one. */
  input: tokens,
  cache_read: tokens,
  cache_write_5m: tokens,
  cache_write_1h: tokens,
  output: tokens,
  /** A part of `output`. */
  reasoning: tokens,
});

const outcomes = ['complete', 'cancelled', 'cut', 'failed', 'unreachable', 'lost'] as const;

/** What the gateway tells the daemon. None of it holds text of requests or answers, nor a key. */
export const gatewayEventSchema = z.discriminatedUnion('type', [
  /** A request leaves for an upstream. */
  z.object({
    type: z.literal('model.request'),
    ...ofCall,
    dialect: z.enum(['anthropic', 'openai-responses', 'openai-chat', 'gemini']),
    /** It offers tools to the model: a step of an agent's work, and no title or suggestion. */
    tools: z.boolean(),
    /** Ids of the `<coppice-message>` markers in the request, in their order; of requests with tools alone. */
    messages: z.array(z.string()),
    /** Those of them that no earlier request of this sandbox had. */
    new_messages: z.array(z.string()),
  }),
  z.object({ type: z.literal('model.first_byte'), ...ofCall, after_ms: z.int() }),
  /** Once for each `model.request`, whatever became of it. */
  z.object({
    type: z.literal('model.settled'),
    ...ofCall,
    outcome: z.enum(outcomes),
    usage: usageSchema,
    /** Millionths of a US dollar; null where the model has no price. */
    cost_micros: z.int().nullable(),
    /** The upstream did not report the final counts. */
    estimated: z.boolean(),
    /** The status of the upstream's answer. */
    status: z.int().nullable(),
    first_byte_ms: z.int().nullable(),
    duration_ms: z.int(),
  }),
  /** A request that never left, as often as once a second for each sandbox and reason. */
  z.object({
    type: z.literal('model.refused'),
    sandbox: z.string(),
    run: z.string().nullable(),
    agent: z.string().nullable(),
    project: z.string().nullable(),
    /** A code of the table of errors: `limit_reached` is a budget. */
    reason: z.string(),
    message: z.string(),
  }),
  /** Each percentage of a budget once; once a day where it is one of days. */
  z.object({
    type: z.literal('budget.threshold'),
    /** The sandbox whose call reached it. */
    sandbox: z.string(),
    percent: z.union([z.literal(75), z.literal(90), z.literal(100)]),
    scope: z.enum(['sandbox', 'run', 'agent', 'project', 'home']),
    name: z.string(),
    period: z.enum(['ever', 'day']),
    action: z.enum(budgetActions),
    tokens: z.int().nullable(),
    micros: z.int().nullable(),
    spent_tokens: z.int(),
    spent_micros: z.int(),
  }),
  z.object({
    type: z.literal('recording.failed'),
    sandbox: z.string(),
    call: z.string(),
    message: z.string(),
  }),
  z.object({
    type: z.literal('connection.refused'),
    sandbox: z.string(),
    name: z.string(),
    port: z.int(),
    reason: z.string(),
  }),
  /** A connection waits until somebody says whether it may go on. */
  z.object({
    type: z.literal('connection.asked'),
    sandbox: z.string(),
    name: z.string(),
    port: z.int(),
    until_ms: z.int(),
  }),
  /** Once for each `connection.asked`. */
  z.object({
    type: z.literal('connection.answered'),
    sandbox: z.string(),
    name: z.string(),
    port: z.int(),
    /** `timeout`: nobody answered in time. `withdrawn`: the sandbox does not ask any more. `lost`: the gateway was restarted. */
    answer: z.enum([...answers, 'timeout', 'withdrawn', 'lost']),
    connections: z.int(),
  }),
]);
export type GatewayEvent = z.infer<typeof gatewayEventSchema>;
export type GatewayEventOf<T extends GatewayEvent['type']> = Extract<GatewayEvent, { type: T }>;

/** Events of the gateway after a position. */
export const gatewayPageSchema = z.object({
  /** Another text for another outbox: positions in one mean nothing in the other. */
  epoch: z.string(),
  events: z.array(z.object({ seq: z.int(), at_ms: z.int(), event: z.unknown() })),
});
