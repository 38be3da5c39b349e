import { z } from 'zod';
import { cut, someOf } from './json-line.ts';

/** What of the Agent Client Protocol is read here. Everything else in a line is left alone. */

const id = z.union([z.int(), z.string().max(200)]);

export const frameSchema = z.object({
  id: id.optional(),
  method: z.string().max(200).optional(),
  params: z.unknown().optional(),
  result: z.unknown().optional(),
  error: z.object({ code: z.number().catch(0), message: cut(4096), data: z.unknown().optional() }).optional(),
});

export const initializedSchema = z.object({
  protocolVersion: z.number(),
  agentInfo: z.object({ version: cut(100) }).nullish(),
});

/** Ids of sessions go back into lines and into the database. */
export const sessionSchema = z.object({ sessionId: z.string().min(1).max(500) });

export const promptedSchema = z.object({ stopReason: z.string().max(64) });

export const steeredSchema = z.object({ outcome: z.string().max(64).optional() }).nullish();

export const permissionSchema = z.object({
  options: someOf(z.object({ optionId: z.string().max(500), kind: z.string().max(64) }), 50),
});

const text = z.object({ type: z.literal('text'), text: z.string() });
const chunk = z.object({ content: text });

const toolContent = someOf(
  z.union([
    z.object({ type: z.literal('content'), content: text }),
    z.object({
      type: z.literal('diff'),
      path: cut(4096),
      oldText: z.string().nullish(),
      newText: z.string().catch(''),
    }),
  ]),
  200,
);

/** A piece of what a command wrote, as codex tells it: in no other way. */
const written = z.object({ data: z.string() }).optional().catch(undefined);

const tool = z.object({
  toolCallId: z.string().min(1).max(200),
  title: cut(1000).nullish(),
  kind: cut(32).nullish(),
  status: z.string().max(32).nullish(),
  rawInput: z.unknown().optional(),
  rawOutput: z.unknown().optional(),
  content: toolContent,
  locations: someOf(z.object({ path: cut(4096) }), 20),
  _meta: z.object({ terminal_output_delta: written, terminal_output: written }).nullish().catch(undefined),
});

export const updateSchema = z.object({
  sessionId: z.string(),
  update: z.discriminatedUnion('sessionUpdate', [
    chunk.extend({ sessionUpdate: z.literal('agent_message_chunk') }),
    chunk.extend({ sessionUpdate: z.literal('agent_thought_chunk') }),
    tool.extend({ sessionUpdate: z.literal('tool_call') }),
    tool.extend({ sessionUpdate: z.literal('tool_call_update') }),
    z.object({
      sessionUpdate: z.literal('plan'),
      entries: someOf(z.object({ content: cut(1000), status: cut(32) }), 200),
    }),
    z.object({
      sessionUpdate: z.literal('usage_update'),
      used: z.int().min(0),
      size: z.int().min(0),
    }),
    z.object({
      sessionUpdate: z.literal('session_info_update'),
      _meta: z.object({ goose: z.object({ activeRunId: z.string().max(200).nullish() }) }),
    }),
  ]),
});
export type ToolUpdate = z.output<typeof tool>;
export type SessionUpdate = z.output<typeof updateSchema>['update'];
