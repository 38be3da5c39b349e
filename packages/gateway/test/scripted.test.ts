import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Scripts } from '../src/index.ts';
import { type RunningGateway, startGateway } from './running-gateway.ts';

const script = {
  by: 'tool-results',
  aside: { text: 'A title' },
  steps: [
    {
      text: 'I look.',
      tools: [{ name: 'bash', input: { command: 'ls' } }],
      usage: { input: 900, output: 40 },
    },
    { text: 'Done.', parts: 2, partDelayMs: 1 },
  ],
};

let directory: string;
let gateway: RunningGateway;
const write = (content: unknown): void =>
  writeFileSync(join(directory, 'demo.json'), JSON.stringify(content));

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-script-'));
  write(script);
  gateway = await startGateway({
    config: { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] },
    scripts: new Scripts(directory),
  });
});
beforeEach(() => {
  gateway.events.length = 0;
  write(script);
});
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** Each: what the model says at first, after a result of its tool, and where no tools are offered. */
const conversations: Record<string, () => Promise<[unknown, string | undefined, string | undefined]>> = {
  async anthropic() {
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'x' });
    const model = 'claude-sonnet-4-5';
    const tools = [{ name: 'bash', input_schema: { type: 'object' as const } }];
    const user = { role: 'user' as const, content: 'hi' };
    const ask = { model, max_tokens: 500 };
    const first = await client.messages.create({ ...ask, tools, messages: [user] });
    const use = first.content.find((part) => part.type === 'tool_use')!;
    const second = await client.messages
      .stream({
        ...ask,
        tools,
        messages: [
          user,
          { role: 'assistant', content: first.content },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'a.txt' }] },
        ],
      })
      .finalText();
    const aside = await client.messages.create({ ...ask, messages: [user] });
    const title = aside.content[0];
    return [use.input, second, title?.type === 'text' ? title.text : undefined];
  },

  async responses() {
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'x' });
    const tools = [
      { type: 'function' as const, name: 'bash', parameters: { type: 'object' }, strict: false },
    ];
    const user = { role: 'user' as const, content: 'hi' };
    const first = await client.responses.create({ model: 'gpt-5', tools, input: [user] });
    const call = first.output.find((item) => item.type === 'function_call')!;
    const result = { type: 'function_call_output' as const, call_id: call.call_id, output: 'a.txt' };
    const second = await client.responses.create({ model: 'gpt-5', tools, input: [user, call, result] });
    const aside = await client.responses.create({ model: 'gpt-5', input: [user] });
    return [JSON.parse(call.arguments), second.output_text, aside.output_text];
  },

  async chat() {
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'x' });
    const tools = [{ type: 'function' as const, function: { name: 'bash' } }];
    const user = { role: 'user' as const, content: 'hi' };
    const ask = { model: 'a-model-nobody-prices' };
    const first = await client.chat.completions.create({ ...ask, tools, messages: [user] });
    const message = first.choices[0]!.message;
    const call = message.tool_calls![0]!;
    const result = { role: 'tool' as const, tool_call_id: call.id, content: 'a.txt' };
    const second = await client.chat.completions.create({ ...ask, tools, messages: [user, message, result] });
    const aside = await client.chat.completions.create({ ...ask, messages: [user] });
    const input = call.type === 'function' ? JSON.parse(call.function.arguments) : undefined;
    return [input, second.choices[0]!.message.content!, aside.choices[0]!.message.content!];
  },

  async gemini() {
    const client = new GoogleGenAI({ apiKey: 'x', httpOptions: { baseUrl: gateway.url } });
    const model = 'gemini-2.5-flash';
    const config = { tools: [{ functionDeclarations: [{ name: 'bash' }] }] };
    const user = { role: 'user', parts: [{ text: 'hi' }] };
    const first = await client.models.generateContent({ model, config, contents: [user] });
    const call = first.functionCalls![0]!;
    const result = { functionResponse: { name: 'bash', response: { output: 'a.txt' } } };
    const second = await client.models.generateContent({
      model,
      config,
      contents: [user, { role: 'model', parts: [{ functionCall: call }] }, { role: 'user', parts: [result] }],
    });
    const aside = await client.models.generateContent({ model, contents: [user] });
    return [call.args, second.text, aside.text];
  },
};

describe('a script as an upstream', () => {
  test.each(Object.keys(conversations))(
    'plays tools and their results to the library of %s',
    async (name) => {
      expect(await conversations[name]!()).toEqual([{ command: 'ls' }, 'Done.', 'A title']);
      const settled = gateway.events.filter((event) => event.type === 'model.settled');
      expect(settled).toHaveLength(3);
      expect(settled[0]).toMatchObject({
        upstream: 'demo',
        outcome: 'complete',
        estimated: false,
        usage: { input: 900, output: 40 },
      });
      // A model that has a price costs it, so that demonstrations show costs; one that has none is free.
      if (name === 'chat') expect(settled[0]!.cost_micros).toBe(0);
      else expect(settled[0]!.cost_micros).toBeGreaterThan(0);
    },
  );

  const ask = (more: object = {}, signal?: AbortSignal): Promise<Response> =>
    fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      body: JSON.stringify({ model: 'm', max_tokens: 100, messages: [], ...more }),
      ...(signal === undefined ? {} : { signal }),
    });

  test('is read again when its file has changed', async () => {
    write({ steps: [{ text: 'something else' }] });
    expect(await (await ask()).text()).toContain('something else');
  });

  test('that is wrong says so in the form of the vendor', async () => {
    write({ steps: [{ txt: 'x' }] });
    const answer = await ask();
    expect(answer.status).toBe(502);
    expect(await answer.json()).toMatchObject({
      type: 'error',
      error: { message: expect.stringMatching(/demo\.json: the script is wrong.*txt/s) },
    });
    expect(gateway.events.at(-1)).toMatchObject({
      type: 'model.settled',
      outcome: 'unreachable',
      cost_micros: 0,
    });
  });

  test('that streams slowly is left when its client goes', async () => {
    write({ steps: [{ text: 'a b c d', parts: 7, partDelayMs: 60_000 }] });
    const leave = new AbortController();
    const answer = await ask({ stream: true }, leave.signal);
    const { value } = await answer.body!.getReader().read();
    expect(Buffer.from(value!).toString()).toContain('message_start');
    leave.abort();
    const isSettled = (): boolean => gateway.events.some((event) => event.type === 'model.settled');
    for (let tries = 0; !isSettled() && tries < 500; tries += 1) await delay(20);
    expect(gateway.events.at(-1)).toMatchObject({ type: 'model.settled', outcome: 'cancelled' });
  });

  test('fails and is tried again as any upstream', async () => {
    write({ steps: [{ text: 'at last', error: { status: 529, retryAfterS: 0, times: 2 } }] });
    expect(await (await ask()).text()).toContain('at last');
    const outcomes = gateway.events.flatMap((event) =>
      event.type === 'model.settled' ? [event.outcome] : [],
    );
    expect(outcomes).toEqual(['failed', 'failed', 'complete']);
  });
});
