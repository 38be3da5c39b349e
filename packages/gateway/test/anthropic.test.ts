import Anthropic from '@anthropic-ai/sdk';
import { expect, test } from 'vitest';
import { close, listen, realKey, startGateway, urlOf } from './running-gateway.ts';

const events = [
  [
    'message_start',
    {
      type: 'message_start',
      message: {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        content: [],
        model: 'claude-sonnet-4-5-20250929',
        stop_reason: null,
        stop_sequence: null,
        usage: {
          input_tokens: 12,
          cache_creation_input_tokens: 300,
          cache_read_input_tokens: 2000,
          cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
          output_tokens: 1,
        },
      },
    },
  ],
  [
    'content_block_start',
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  ],
  ['ping', { type: 'ping' }],
  [
    'content_block_delta',
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello "usage" \u00e9' } },
  ],
  ['content_block_stop', { type: 'content_block_stop', index: 0 }],
  [
    'message_delta',
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 50, cache_creation_input_tokens: 300 },
    },
  ],
  ['message_stop', { type: 'message_stop' }],
] as const;

const streamText = events.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join('');

test('the vendor’s library streams through the gateway, and the ledger has each kind of token and the price', async () => {
  const seen: { key: unknown; authorization: unknown; body: string }[] = [];
  const upstream = await listen(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    seen.push({ key: request.headers['x-api-key'], authorization: request.headers.authorization, body });
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    response.end(streamText);
  });
  await using gateway = await startGateway({
    config: { upstreams: [{ name: 'vendor', kind: 'anthropic', url: urlOf(upstream), secret: 'anthropic' }] },
    caller: { sandbox: 'dev', run: 'run-1', agent: 'claude', project: 'web' },
  });
  try {
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'placeholder', maxRetries: 0 });
    const message = await client.messages
      .stream({ model: 'claude-sonnet-4-5', max_tokens: 1000, messages: [{ role: 'user', content: 'hi' }] })
      .finalMessage();
    expect(message.content).toEqual([{ type: 'text', text: 'Hello "usage" é' }]);
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ key: realKey, authorization: undefined });
    expect(JSON.parse(seen[0]!.body)).toMatchObject({
      model: 'claude-sonnet-4-5',
      max_tokens: 1000,
      stream: true,
    });
    expect(gateway.calls()).toMatchObject([
      {
        sandbox: 'dev',
        run: 'run-1',
        agent: 'claude',
        project: 'web',
        dialect: 'anthropic',
        model_asked: 'claude-sonnet-4-5',
        model_served: 'claude-sonnet-4-5-20250929',
        upstream: 'vendor',
        input: 12,
        cache_read: 2000,
        cache_write_5m: 100,
        cache_write_1h: 200,
        output: 50,
        // Dollars for a million tokens: input 3, read 0.30, written 3.75 and 6, output 15.
        cost_micros: 12 * 3 + 2000 * 0.3 + 100 * 3.75 + 200 * 6 + 50 * 15 + 0,
        estimated: 0,
        outcome: 'complete',
        status: 200,
        price_version: 'genai-prices@0.1.8',
      },
    ]);
  } finally {
    await close(upstream);
  }
});
