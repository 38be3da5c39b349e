import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { CoppiceError, documentBytes, permits, sessionNameSchema } from '@coppice/protocol';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, type JSONRPCRequest, type Server } from '@modelcontextprotocol/server';
import type { FastifyRequest } from 'fastify';
import type { DoorServices } from '../../door-services.ts';
import { ConfinedDirectory } from '../../notes/confined-directory.ts';
import type { Principal } from '../../services.ts';
import type { Calls } from '../calls.ts';
import type { HttpServer } from '../http/server.ts';
import { createMcpServer } from './mcp-server.ts';
import { PendingCalls } from './pending-calls.ts';
import { type Selection, ToolSet } from './registry.ts';
import { readSelection, selectionParameters } from './selection.ts';
import { asSingleRequest, SingleExchange } from './single-exchange.ts';

export interface RegisterMcpOptions {
  readonly services: DoorServices;
  readonly calls: Calls;
  readonly version: string;
  /** The one directory of this machine that file_upload and file_download reach. */
  readonly transferDir: string;
  readonly onInternalError: (error: unknown, where: string) => void;
}

interface McpCall {
  readonly principal: Principal;
  readonly session: string;
  readonly selection: Selection;
  readonly signal: AbortSignal;
}

const sessionHeader = 'mcp-session-id';
const mostToolSets = 100;

/**
 * Mounts the MCP server at /mcp. Requests stand alone: a client goes on after a restart of the daemon as if nothing had
 * been. Whose sandboxes are whose is kept with the sandboxes, by the session that `?session=` names, or by token.
 */
export const registerMcp = async (door: HttpServer, options: RegisterMcpOptions): Promise<void> => {
  const { app } = door;
  const parts = {
    services: options.services,
    calls: options.calls,
    transfers: await ConfinedDirectory.open(
      options.transferDir,
      'transfer directory',
      '`transfer_dir` in config.json',
    ),
  };
  const toolSets = new Map<string, ToolSet>();
  /** Tokens of one kind may do the same, each to its own. */
  const toolSet = (selection: Selection, principal: Principal): ToolSet => {
    const key = JSON.stringify([selection, principal.scope.kind, principal.role]);
    const known = toolSets.get(key) ?? ToolSet.of(selection, (action) => permits(principal, action));
    // Callers choose the selection, so what is remembered of it is bounded.
    if (toolSets.size >= mostToolSets) toolSets.clear();
    toolSets.set(key, known);
    return known;
  };
  const pending = new PendingCalls();
  const serverFor = ({ principal, session, selection, signal }: McpCall): Server =>
    createMcpServer({
      parts,
      tools: toolSet(selection, principal),
      caller: { principal, session, signal },
      version: options.version,
      onInternalError: options.onInternalError,
    });
  const handler = createMcpHandler(({ authInfo }) => serverFor(authInfo!.extra!.call as McpCall), {
    onerror: () => {},
  });
  app.addHook('onClose', () => handler.close());

  const serve = toNodeHandler(handler);
  const serveSingle = async (
    single: JSONRPCRequest,
    response: ServerResponse,
    call: McpCall,
  ): Promise<void> => {
    // Clients of the older revisions name themselves by it in what they send later, also to cancel.
    const headers: Record<string, string> =
      single.method === 'initialize' ? { [sessionHeader]: randomUUID() } : {};
    const exchange = new SingleExchange(response, { headers });
    await serverFor(call).connect(exchange);
    await exchange.serve(single);
  };

  app.route({
    method: ['GET', 'POST', 'DELETE'],
    url: '/mcp',
    config: { door: { entry: 'token', documentBytes: documentBytes.content } },
    handler: async (request, reply) => {
      const principal = door.principalOf(request);
      const body = door.documentOf(request);
      const session = readSession(request, principal);
      const selection = readSelection(request.query as Record<string, unknown>, request.headers);
      const client = request.headers[sessionHeader];
      const sender = typeof client === 'string' ? `${principal.tokenId} ${client}` : undefined;
      const abort = new AbortController();
      reply.raw.on('close', () => {
        if (!reply.raw.writableFinished) abort.abort();
      });
      const leave = pending.enter(sender, body, abort);
      const call: McpCall = { principal, session, selection, signal: abort.signal };
      const single = asSingleRequest(request.method, request.headers, body);
      reply.hijack();
      try {
        if (single !== undefined) return await serveSingle(single, reply.raw, call);
        const auth = {
          token: '',
          clientId: principal.tokenId,
          scopes: [principal.scope.kind],
          extra: { call },
        };
        const raw = Object.assign(request.raw, { auth });
        await serve(raw, reply.raw as unknown as Parameters<typeof serve>[1], body);
      } finally {
        leave();
      }
    },
  });
};

const parameters: readonly string[] = ['session', ...selectionParameters];

const readSession = (request: FastifyRequest, principal: Principal): string => {
  const query = request.query as Record<string, unknown>;
  const unknown = Object.keys(query).find((name) => !parameters.includes(name));
  if (unknown !== undefined)
    throw new CoppiceError('invalid_argument', `/mcp takes ${parameters.join(', ')}, not \`${unknown}\``);
  const { session = principal.tokenId } = query;
  if (typeof session === 'string' && sessionNameSchema.safeParse(session).success) return session;
  throw new CoppiceError(
    'invalid_argument',
    'the session must be 1 to 128 letters, digits, `_`, `.`, `:`, `@` or `-`',
  );
};
