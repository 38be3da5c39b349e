import { createServer, type Server } from 'node:http';
import { json } from 'node:stream/consumers';
import { CoppiceError } from '@coppice/protocol';
import type { ContentBlock } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { createMcpServer } from '../../packages/daemon/src/doors/mcp/mcp-server.ts';
import { ToolSet } from '../../packages/daemon/src/doors/mcp/registry.ts';
import { asSingleRequest, SingleExchange } from '../../packages/daemon/src/doors/mcp/single-exchange.ts';
import { defineTool, readOnly, type Tool } from '../../packages/daemon/src/doors/mcp/tool.ts';
import type { McpParts, ToolContext } from '../../packages/daemon/src/doors/mcp/tool-context.ts';

const pixel =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';
const silence = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const text = (value: string): ContentBlock => ({ type: 'text', text: value });
const image: ContentBlock = { type: 'image', data: pixel, mimeType: 'image/png' };
const resource = (uri: string): ContentBlock => ({
  type: 'resource',
  resource: { uri, mimeType: 'text/plain', text: 'a resource' },
});

const tool = (
  name: string,
  content: readonly ContentBlock[],
  run: (context: ToolContext) => void = () => {},
  input: z.ZodObject = z.strictObject({}),
): Tool =>
  defineTool({
    name,
    title: name,
    description: 'For the conformance suite; do not use it otherwise.',
    actions: ['health'],
    annotations: readOnly,
    input,
    output: z.object({}),
    content: () => [...content],
    run: async (context) => {
      run(context);
      return {};
    },
  });

const address = z.object({ street: z.string(), city: z.string() }).meta({ id: 'address' });

const tools: readonly Tool[] = [
  tool('test_simple_text', [text('plain')]),
  tool('test_image_content', [image]),
  tool('test_audio_content', [{ type: 'audio', data: silence, mimeType: 'audio/wav' }]),
  tool('test_embedded_resource', [resource('test://embedded-resource')]),
  tool('test_multiple_content_types', [text('several'), image, resource('test://mixed-content-resource')]),
  tool('test_error_handling', [], () => {
    throw new CoppiceError('conflict', 'this always fails');
  }),
  tool('test_tool_with_progress', [text('done')], (context) => {
    for (const fraction of [0, 0.5, 1]) context.report('at it', fraction);
  }),
  tool(
    'json_schema_2020_12_tool',
    [text('ok')],
    undefined,
    z.strictObject({ name: z.string().optional(), address: address.optional(), other: address.optional() }),
  ),
];

/** The tools that the conformance suite asks for, behind the daemon's own protocol code. */
export const conformanceServer = (): Server => {
  const parts = {
    services: { sessions: { begin: async () => undefined, end: async () => undefined } },
  } as unknown as McpParts;
  const toolSet = new ToolSet(tools, true);
  return createServer(async (request, response) => {
    const body = request.method === 'POST' ? await json(request) : undefined;
    const single = asSingleRequest(request.method ?? '', request.headers, body);
    if (single === undefined) {
      response.writeHead(request.method === 'POST' ? 202 : 405).end();
      return;
    }
    const exchange = new SingleExchange(response);
    const caller = {
      principal: {
        tokenId: 'conformance',
        scope: { kind: 'admin' as const },
        role: 'full' as const,
        owner: null,
      },
      session: 'conformance',
      signal: new AbortController().signal,
    };
    const onInternalError = (error: unknown): void => {
      throw error;
    };
    await createMcpServer({ parts, tools: toolSet, caller, version: '0', onInternalError }).connect(exchange);
    await exchange.serve(single);
  });
};
