import { type Action, CoppiceError } from '@coppice/protocol';
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { cleanError } from '../../redaction/clean-error.ts';
import { redact } from '../../redaction/redact.ts';
import { hasMask, mask } from '../../redaction/secrets.ts';
import { invalidInput } from '../problem.ts';
import { fitAnswer } from './answer-size.ts';
import { asMeant, type Shape } from './lenient.ts';
import { getPrompt, prompts } from './prompts.ts';
import type { ToolSet } from './registry.ts';
import { listResources, readResource, resourceActions, resourceTemplates } from './resources.ts';
import type { Tool } from './tool.ts';
import { type Caller, type McpParts, ToolContext } from './tool-context.ts';
import { toFailure } from './tool-failure.ts';

const instructions = `Coppice gives you isolated Linux computers (workspaces) that can be snapshotted, rolled back and forked.
Start with workspace_create, then exec, file_write, file_read; snapshot_create before anything risky, snapshot_restore to go back; workspace_destroy when you are done.
workspace_id takes an id or a name. Internet is off unless allow_internet is true. Relative paths start at /workspace. Answers are cut to about 8000 tokens and say so.
Commands longer than timeout_secs: exec_background, then exec_poll with wait_secs. Errors end with the next tool to call.`;

export interface McpServerOptions {
  readonly parts: McpParts;
  readonly tools: ToolSet;
  readonly caller: Omit<Caller, 'report'>;
  readonly version: string;
  readonly onInternalError: (error: unknown, where: string) => void;
}

type Report = Caller['report'];

/** Progress goes to those that asked for it, and is never a reason to fail. */
const reporter = (context: ServerContext): Report => {
  const progressToken = context.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return () => {};
  let last = 0;
  let total: { total?: number } = {};
  return (message, fraction) => {
    // It must grow with every notification, also from one that knows how far it is to one that does not and back.
    last = Math.max(fraction ?? 0, last + 1e-6);
    if (fraction !== undefined) total = { total: 1 };
    const params = { progressToken, progress: last, ...total, message };
    context.mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
  };
};

/** The answers to one caller; made anew for each request, so it holds nothing that a request could leave behind. */
export const createMcpServer = (options: McpServerOptions): Server => {
  const { parts, tools, version } = options;
  const server = new Server(
    { name: 'coppice', title: 'Coppice', version },
    { capabilities: { tools: {}, resources: {}, prompts: {} }, instructions: tools.explain(instructions) },
  );
  const contextOf = (request: ServerContext, actions: readonly Action[] = resourceActions): ToolContext => {
    const caller = {
      ...options.caller,
      signal: AbortSignal.any([options.caller.signal, request.mcpReq.signal]),
      report: reporter(request),
    };
    return new ToolContext(parts, caller, actions);
  };
  server.setRequestHandler('tools/list', async () => ({ tools: [...tools.listings] }));
  server.setRequestHandler('tools/call', async ({ params }, request) => {
    const tool = tools.find(params.name);
    if (tool === undefined)
      throw new ProtocolError(
        ProtocolErrorCode.InvalidParams,
        `there is no tool ${params.name}; tools/list names those there are`,
      );
    const context = contextOf(request, [...tool.actions, ...(tool.extras ?? [])]);
    return call(options, tool, params.arguments ?? {}, context);
  });
  server.setRequestHandler('resources/list', async (_request, request) => {
    const context = contextOf(request);
    return context.secrets.redactAll({ resources: await listResources(context) });
  });
  server.setRequestHandler('resources/templates/list', async () => ({
    resourceTemplates: [...resourceTemplates],
  }));
  server.setRequestHandler('resources/read', async ({ params }, request) =>
    asProtocolError(options, 'resources/read', contextOf(request), async (context) =>
      context.secrets.redactAll(await readResource(context, params.uri)),
    ),
  );
  server.setRequestHandler('prompts/list', async () => ({ prompts: [...prompts] }));
  server.setRequestHandler('prompts/get', async ({ params }, request) =>
    asProtocolError(options, 'prompts/get', contextOf(request), async () =>
      getPrompt(params.name, params.arguments ?? {}),
    ),
  );
  return server;
};

const call = async (
  options: McpServerOptions,
  tool: Tool,
  given: Record<string, unknown>,
  context: ToolContext,
): Promise<CallToolResult> => {
  const { sessions } = options.parts.services;
  await sessions.begin(context.session);
  try {
    const input = parseInput(tool, given);
    if (!input.success) throw badArguments(tool, invalidInput(input.error, 'argument'));
    if (tool.annotations.readOnlyHint !== true) refuseMasked(tool, given);
    const shown = context.secrets.redactAll(await tool.run(context, input.data));
    context.signal.throwIfAborted();
    const sized = asksForSize(given) ? shown : fitAnswer(shown);
    const output = context.secrets.masked ? { ...sized, redacted: true } : sized;
    const content = tool.content?.(output);
    const note = { type: 'text' as const, text: maskedNote };
    return {
      content:
        content === undefined
          ? [{ type: 'text', text: JSON.stringify(output) }]
          : [...content, ...(context.secrets.masked ? [note] : [])],
      structuredContent: output,
    };
  } catch (thrown) {
    const explain = (text: string) => options.tools.explain(text);
    const { result, error } = toFailure(thrown, { tool, explain, cancelled: context.signal.aborted });
    if (error.code === 'internal') report(options, context, error, tool.name);
    return context.secrets.redactAll(result);
  } finally {
    await sessions.end(context.session);
  }
};

/** As it is written, or else as it was meant. */
const parseInput = (tool: Tool, given: Record<string, unknown>) => {
  const strict = tool.input.safeParse(given);
  if (strict.success) return strict;
  const meant = tool.input.safeParse(asMeant(z.toJSONSchema(tool.input, { io: 'input' }) as Shape, given));
  return meant.success ? meant : strict;
};

/** Who says how much to answer with gets that much. */
const sizes = ['limit', 'max_output_bytes', 'max_bytes', 'max_lines', 'max_results'];
const asksForSize = (given: Record<string, unknown>): boolean =>
  sizes.some((name) => given[name] !== undefined && given[name] !== null);

const maskedNote = `[REDACTED: ${mask} stands for the value of a secret variable; what has it cannot be written back]`;

/** What an agent read without its secrets would replace them, where it is written back. */
const refuseMasked = (tool: Tool, given: unknown): void => {
  const holds = (value: unknown): boolean => {
    if (typeof value === 'string') return hasMask(value);
    return typeof value === 'object' && value !== null && Object.values(value).some(holds);
  };
  if (!holds(given)) return;
  throw new CoppiceError(
    'invalid_argument',
    `${tool.name}: the arguments hold ${mask}, which an answer shows in place of a secret`,
    {
      hint: 'Nothing was changed. Change the rest with file_edit, or let a command inside use the variable itself, as in exec with printf %s "$GIT_TOKEN".',
    },
  );
};

/** For the log of the daemon, which holds no credential either: neither known ones, nor what looks like one. */
const report = (
  options: McpServerOptions,
  context: ToolContext,
  error: CoppiceError,
  where: string,
): void => {
  const clean = (text: string) => context.secrets.redact(redact(text));
  options.onInternalError(cleanError(error.cause ?? error, clean), `mcp ${where}`);
};

const badArguments = (tool: Tool, error: CoppiceError): CoppiceError =>
  new CoppiceError('invalid_argument', `${tool.name}: ${error.message}`, {
    hint: `${tool.name} takes ${Object.keys(tool.input.shape).join(', ')}; correct what is named and call it again.`,
  });

const asProtocolError = async <T>(
  options: McpServerOptions,
  where: string,
  context: ToolContext,
  work: (context: ToolContext) => Promise<T>,
): Promise<T> => {
  try {
    return await work(context);
  } catch (thrown) {
    const { error, result } = toFailure(thrown);
    if (error.code === 'internal') report(options, context, error, where);
    const [first] = context.secrets.redactAll(result.content);
    const text = first?.type === 'text' ? first.text : error.code;
    throw new ProtocolError(
      error.code === 'internal' ? ProtocolErrorCode.InternalError : ProtocolErrorCode.InvalidParams,
      text,
    );
  }
};
