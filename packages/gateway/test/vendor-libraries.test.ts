import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { type Heard, ScriptedUpstream } from '../src/index.ts';
import { type RunningGateway, realKey, startGateway } from './running-gateway.ts';

const usage = { input: 900, cacheRead: 100, output: 60, reasoning: 20 };
const script = {
  steps: [
    { text: 'I look around. ✓', tools: [{ name: 'list', input: { path: '/tmp/"x"' } }], usage },
    { text: 'Done.', usage: { input: 1200, output: 5 } },
  ],
};

/** The columns of the ledger that a call of the first step leaves. */
const firstCall = {
  input: 900,
  cache_read: 100,
  cache_write_5m: 0,
  cache_write_1h: 0,
  output: 60,
  estimated: 0,
  outcome: 'complete',
};

interface Stage extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly heard: Heard[];
}

async function stage(): Promise<Stage> {
  const heard: Heard[] = [];
  const upstream = new ScriptedUpstream(script, (one) => heard.push(one));
  const url = await upstream.listen();
  const gateway = await startGateway({
    config: {
      upstreams: [
        { name: 'a', kind: 'anthropic', url, secret: 'a' },
        { name: 'o', kind: 'openai', url, secret: 'o' },
        { name: 'g', kind: 'google', url, secret: 'g' },
      ],
    },
  });
  return {
    gateway,
    heard,
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

/** No header of any request that left the gateway has the placeholder, and one has the key. */
const expectKeys = (heard: readonly Heard[]): void => {
  expect(heard.length).toBeGreaterThan(0);
  for (const one of heard) {
    expect(`${JSON.stringify(one.headers)} ${one.path}`).toContain(realKey);
    expect(`${JSON.stringify(one.headers)} ${one.path}`).not.toContain('placeholder');
  }
};

describe('through the gateway', () => {
  test('Anthropic’s library streams, calls tools and counts tokens', async () => {
    await using it = await stage();
    const client = new Anthropic({ baseURL: it.gateway.url, apiKey: 'placeholder', maxRetries: 0 });
    const ask = {
      model: 'claude-opus-5-5',
      max_tokens: 1000,
      messages: [{ role: 'user' as const, content: 'hi' }],
    };
    const streamed = await client.messages.stream(ask).finalMessage();
    const whole = await client.messages.create(ask);
    for (const message of [streamed, whole]) {
      expect(message.content).toMatchObject([
        { type: 'text', text: 'I look around. ✓' },
        { type: 'tool_use', name: 'list', input: { path: '/tmp/"x"' } },
      ]);
      expect(message.usage).toMatchObject({ input_tokens: 900, output_tokens: 60 });
    }
    const counted = await client.messages.countTokens({ model: ask.model, messages: ask.messages });
    expect(counted.input_tokens).toBeGreaterThan(0);
    expectKeys(it.heard);
    expect(it.gateway.calls()).toMatchObject([
      { ...firstCall, dialect: 'anthropic' },
      { ...firstCall, dialect: 'anthropic' },
    ]);
  });

  test('OpenAI’s library streams responses and calls tools', async () => {
    await using it = await stage();
    const client = new OpenAI({ baseURL: `${it.gateway.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
    const ask = { model: 'gpt-5.5', input: [{ role: 'user' as const, content: 'hi' }] };
    const streamed = await client.responses.stream(ask).finalResponse();
    const whole = await client.responses.create(ask);
    for (const answer of [streamed, whole]) {
      expect(answer.output_text).toBe('I look around. ✓');
      expect(answer.output[1]).toMatchObject({
        type: 'function_call',
        name: 'list',
        arguments: '{"path":"/tmp/\\"x\\""}',
      });
      expect(answer.usage).toMatchObject({ input_tokens: 1000, output_tokens: 60 });
    }
    expectKeys(it.heard);
    const expected = { ...firstCall, dialect: 'openai-responses', reasoning: 20 };
    expect(it.gateway.calls()).toMatchObject([expected, expected]);
  });

  test.each([true, false])(
    'OpenAI’s library streams chat completions, with the usage asked for: %s',
    async (asks) => {
      await using it = await stage();
      const client = new OpenAI({ baseURL: `${it.gateway.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
      const stream = await client.chat.completions.create({
        model: 'gpt-4o-mini',
        messages: [{ role: 'user', content: 'hi' }],
        stream: true,
        ...(asks ? { stream_options: { include_usage: true } } : {}),
      });
      let text = '';
      let chunksWithoutChoices = 0;
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? '';
        if (chunk.choices.length === 0) chunksWithoutChoices += 1;
      }
      expect(text).toBe('I look around. ✓');
      // Many clients look at the first choice of every chunk.
      expect(chunksWithoutChoices).toBe(asks ? 1 : 0);
      expectKeys(it.heard);
      const expected = { ...firstCall, dialect: 'openai-chat', reasoning: 20 };
      expect(it.gateway.calls()).toMatchObject([expected]);
    },
  );

  test('OpenAI’s library gets a whole chat completion', async () => {
    await using it = await stage();
    const client = new OpenAI({ baseURL: `${it.gateway.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
    const messages = [
      { role: 'user' as const, content: 'hi' },
      { role: 'assistant' as const, content: 'I look' },
      { role: 'user' as const, content: 'go on' },
    ];
    const answer = await client.chat.completions.create({ model: 'gpt-4o-mini', messages });
    expect(answer.choices[0]?.message.content).toBe('Done.');
    // The body left as the library wrote it.
    expect(JSON.parse(it.heard[0]!.body)).toEqual({ model: 'gpt-4o-mini', messages });
    expect(it.gateway.calls()).toMatchObject([{ input: 1200, output: 5, model_served: 'gpt-4o-mini' }]);
  });

  test('Google’s library streams and calls tools', async () => {
    await using it = await stage();
    const client = new GoogleGenAI({ apiKey: 'placeholder', httpOptions: { baseUrl: it.gateway.url } });
    const ask = { model: 'gemini-2.5-pro', contents: 'hi' };
    let text = '';
    const calls: unknown[] = [];
    for await (const chunk of await client.models.generateContentStream(ask)) {
      for (const part of chunk.candidates?.[0]?.content?.parts ?? []) {
        text += part.text ?? '';
        if (part.functionCall !== undefined) calls.push(part.functionCall);
      }
    }
    const whole = await client.models.generateContent(ask);
    expect(text).toBe('I look around. ✓');
    expect(calls).toMatchObject([{ name: 'list', args: { path: '/tmp/"x"' } }]);
    expect(whole.usageMetadata).toMatchObject({ promptTokenCount: 1000, thoughtsTokenCount: 20 });
    expectKeys(it.heard);
    const expected = { ...firstCall, dialect: 'gemini', model_asked: 'gemini-2.5-pro', reasoning: 20 };
    expect(it.gateway.calls()).toMatchObject([expected, expected]);
  });
});
