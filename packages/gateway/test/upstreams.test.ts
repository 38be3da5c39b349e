import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { type Heard, type ModelsConfig, ScriptedUpstream, Upstreams } from '../src/index.ts';
import { close, listen, type RunningGateway, startGateway, urlOf } from './running-gateway.ts';

const priceFile = { models: { '*': { input: 1, output: 10 } } };

/** Nobody listens there. */
const nowhere = 'http://127.0.0.1:9';

interface Stage extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly heard: readonly Heard[][];
}

/** A gateway in front of one scripted upstream for each step; `config` gets their addresses. */
async function stage(
  steps: readonly Record<string, unknown>[],
  config: (urls: readonly string[]) => ModelsConfig,
): Promise<Stage> {
  const heard: Heard[][] = steps.map(() => []);
  const scripted = steps.map(
    (step, index) => new ScriptedUpstream({ steps: [step] }, (one) => heard[index]!.push(one)),
  );
  const urls = await Promise.all(scripted.map((one) => one.listen()));
  const gateway = await startGateway({ config: config(urls), priceFile });
  return {
    gateway,
    heard,
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      for (const one of scripted) await one[Symbol.asyncDispose]();
    },
  };
}

const ask = (it: Stage, model = 'm', project?: string): Promise<Response> =>
  fetch(`${it.gateway.url}/v1/messages`, {
    method: 'POST',
    headers: {
      'x-test-caller': JSON.stringify({ sandbox: 'dev', ...(project === undefined ? {} : { project }) }),
    },
    body: JSON.stringify({ model, max_tokens: 100, messages: [] }),
  });

const kind = 'anthropic';

describe('an upstream', () => {
  test('that is down is passed over for the next, and both tries are in the ledger', async () => {
    await using it = await stage([{ text: 'second' }], ([url]) => ({
      upstreams: [
        { name: 'first', kind, url: nowhere, retries: 0 },
        { name: 'second', kind, url: url! },
      ],
    }));
    const answer = await ask(it);
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ content: [{ text: 'second' }] });
    const rows = it.gateway.calls();
    expect(rows).toMatchObject([
      { attempt: 1, upstream: 'first', outcome: 'unreachable', input: 0, output: 0, cost_micros: 0 },
      { attempt: 2, upstream: 'second', outcome: 'complete' },
    ]);
    expect(rows[0]!.call).toBe(rows[1]!.call);
    expect(answer.headers.get('x-coppice-call')).toBe(rows[0]!.call);
  });

  test('that is busy is asked again after as long as it says, and its client does not notice', async () => {
    await using it = await stage(
      [{ text: 'at last', error: { status: 529, retryAfterS: 0.2, times: 2 } }],
      ([url]) => ({
        upstreams: [{ name: 'u', kind, url: url!, retries: 2 }],
      }),
    );
    const began = performance.now();
    expect((await ask(it)).status).toBe(200);
    // A lower bound only: waiting less would not honour the header.
    expect(performance.now() - began).toBeGreaterThan(390);
    expect(it.gateway.calls()).toMatchObject([
      { outcome: 'failed', status: 529, cost_micros: 0, estimated: 0 },
      { outcome: 'failed', status: 529 },
      { outcome: 'complete', status: 200 },
    ]);
  });

  test('that wants a longer wait than is allowed has its answer passed on as it is', async () => {
    const message = 'come back tomorrow';
    await using it = await stage([{ error: { status: 429, message, retryAfterS: 3600 } }], ([url]) => ({
      upstreams: [{ name: 'u', kind, url: url! }],
    }));
    const answer = await ask(it);
    expect(answer.status).toBe(429);
    expect(answer.headers.get('retry-after')).toBe('3600');
    expect(await answer.json()).toMatchObject({ type: 'error', error: { message } });
    expect(it.heard[0]).toHaveLength(1);
  });

  test('that is busy for long or refuses its key is passed over where there is another', async () => {
    for (const error of [{ status: 429, retryAfterS: 3600 }, { status: 401 }, { status: 404 }]) {
      await using it = await stage([{ error }, { text: 'here' }], ([first, second]) => ({
        upstreams: [
          { name: 'first', kind, url: first! },
          { name: 'second', kind, url: second! },
        ],
      }));
      expect((await ask(it)).status).toBe(200);
      expect(it.heard.map((one) => one.length)).toEqual([1, 1]);
    }
  });

  test('that finds the request wrong is asked once, and nobody else is', async () => {
    await using it = await stage(
      [{ error: { status: 400, message: 'too long' } }, { text: 'x' }],
      ([first, second]) => ({
        upstreams: [
          { name: 'first', kind, url: first! },
          { name: 'second', kind, url: second! },
        ],
      }),
    );
    expect((await ask(it)).status).toBe(400);
    expect(it.heard.map((one) => one.length)).toEqual([1, 0]);
  });

  test('that refuses the key tells the sandbox nothing about it', async () => {
    await using it = await stage([{ error: { status: 401, message: 'wrong key sk-real-key' } }], ([url]) => ({
      upstreams: [{ name: 'u', kind, url: url!, secret: 's' }],
    }));
    const answer = await ask(it);
    expect(answer.status).toBe(403);
    expect(await answer.text()).not.toContain('sk-real');
  });

  test('that sends elsewhere is not followed', async () => {
    const away = await listen((_request, response) => {
      response.writeHead(307, { location: 'http://127.0.0.1:9/v1/messages' }).end();
    });
    try {
      await using it = await stage([], () => ({ upstreams: [{ name: 'u', kind, url: urlOf(away) }] }));
      const answer = await fetch(`${it.gateway.url}/v1/messages`, {
        method: 'POST',
        redirect: 'manual',
        body: '{"model":"m"}',
      });
      expect(answer.status).toBe(502);
    } finally {
      await close(away);
    }
  });

  test('that is down gives each library the error that it knows', async () => {
    await using it = await stage([], () => ({
      upstreams: [
        { name: 'a', kind, url: nowhere, retries: 0 },
        { name: 'o', kind: 'openai', url: nowhere, retries: 0 },
        { name: 'g', kind: 'google', url: nowhere, retries: 0 },
      ],
    }));
    const { url } = it.gateway;
    const messages = [{ role: 'user' as const, content: 'hi' }];
    const anthropic = new Anthropic({ baseURL: url, apiKey: 'p', maxRetries: 0 });
    const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'p', maxRetries: 0 });
    const google = new GoogleGenAI({
      apiKey: 'p',
      httpOptions: { baseUrl: url, retryOptions: { attempts: 1 } },
    });
    const expected = { status: 502, message: expect.stringMatching(/the upstream [aog] does not answer/) };
    await expect(anthropic.messages.create({ model: 'm', max_tokens: 1, messages })).rejects.toMatchObject(
      expected,
    );
    await expect(openai.chat.completions.create({ model: 'm', messages })).rejects.toMatchObject(expected);
    await expect(openai.responses.create({ model: 'm', input: 'hi' })).rejects.toMatchObject(expected);
    await expect(google.models.generateContent({ model: 'm', contents: 'hi' })).rejects.toMatchObject(
      expected,
    );
  });
});

describe('a project', () => {
  const config = (urls: readonly string[]): ModelsConfig => ({
    upstreams: [
      { name: 'main', kind, url: urls[0]!, models: ['claude-*', 'cheap-1'] },
      { name: 'local', kind, url: urls[1]!, models: ['local-1'] },
    ],
    default: { allow: ['claude-haiku-4-5'] },
    projects: {
      web: { allow: ['claude-*'], aliases: { fast: 'cheap-1', 'gpt-4.1': 'local-1' } },
      pinned: { allow: ['*'], upstreams: ['local'] },
    },
  });

  test('may ask for the models that it is allowed, and for no others', async () => {
    await using it = await stage([{ text: 'x' }, { text: 'y' }], config);
    expect((await ask(it, 'claude-opus-5-5', 'web')).status).toBe(200);
    expect((await ask(it, 'cheap-1', 'web')).status).toBe(403);
    expect((await ask(it, 'claude-opus-5-5')).status).toBe(403);
    expect((await ask(it, 'claude-haiku-4-5')).status).toBe(200);
    expect((await ask(it, 'claude-opus-5-5', 'pinned')).status).toBe(404);
    expect((await ask(it, 'local-1', 'pinned')).status).toBe(200);
  });

  test('asks for other names by its aliases, and the body is changed there alone', async () => {
    await using it = await stage([{ text: 'x' }, { text: 'y' }], config);
    const body = '{"max_tokens":\t5,"messages":[ ], "m\\u006fdel" : "fast" ,"temperature":1.0}';
    const headers = { 'x-test-caller': '{"sandbox":"dev","project":"web"}' };
    const answer = await fetch(`${it.gateway.url}/v1/messages`, { method: 'POST', headers, body });
    expect(answer.status).toBe(200);
    expect(it.heard[0]![0]!.body).toBe(body.replace('"fast"', '"cheap-1"'));
    expect((await ask(it, 'gpt-4.1', 'web')).status).toBe(200);
    expect(it.heard[1]).toHaveLength(1);
    expect(it.gateway.calls()).toMatchObject([
      { model_asked: 'fast', model: 'cheap-1', upstream: 'main' },
      { model_asked: 'gpt-4.1', model: 'local-1', upstream: 'local' },
    ]);
  });

  test('reads the list of its models in each vendor’s form', async () => {
    await using it = await stage([{ text: 'x' }, { text: 'y' }], config);
    const headers = { 'x-test-caller': '{"sandbox":"dev","project":"web"}' };
    const openai = new OpenAI({ baseURL: `${it.gateway.url}/v1`, apiKey: 'p', defaultHeaders: headers });
    const anthropic = new Anthropic({ baseURL: it.gateway.url, apiKey: 'p', defaultHeaders: headers });
    const google = new GoogleGenAI({ apiKey: 'p', httpOptions: { baseUrl: it.gateway.url, headers } });
    const ids: string[][] = [[], [], []];
    for await (const model of openai.models.list()) ids[0]!.push(model.id);
    for await (const model of anthropic.models.list()) ids[1]!.push(model.id);
    for await (const model of await google.models.list()) ids[2]!.push(model.name!.replace('models/', ''));
    for (const list of ids) {
      expect(list).toContain('fast');
      expect(list).toContain('claude-opus-5-5');
      expect(list).not.toContain('cheap-1');
    }
    expect(await openai.models.retrieve('fast')).toMatchObject({ id: 'fast' });
    await expect(openai.models.retrieve('cheap-1')).rejects.toMatchObject({ status: 404 });
  });
});

test.each([
  ['an upstream without an address', { upstreams: [{ name: 'a', kind: 'openai-compatible' }] }],
  [
    'two of one name',
    {
      upstreams: [
        { name: 'a', kind },
        { name: 'a', kind },
      ],
    },
  ],
  [
    'a project that names an upstream that is not there',
    { upstreams: [], projects: { p: { upstreams: ['x'] } } },
  ],
  ['an unknown field', { upstreams: [{ name: 'a', kind, key: 'sk-in-the-wrong-place' }] }],
  ['an address that is not HTTP', { upstreams: [{ name: 'a', kind, url: 'file:///etc/passwd' }] }],
])('a configuration with %s is refused', (_what, config) => {
  expect(() => new Upstreams(config)).toThrow(/upstream|configuration/);
});

test('an OpenAI-compatible server needs no key and gets none', async () => {
  await using it = await stage([{ text: 'local', usage: { input: 7, output: 3 } }], ([url]) => ({
    upstreams: [{ name: 'llama', kind: 'openai-compatible', url: url! }],
  }));
  const openai = new OpenAI({ baseURL: `${it.gateway.url}/v1`, apiKey: 'placeholder' });
  const answer = await openai.chat.completions.create({
    model: 'qwen',
    messages: [{ role: 'user', content: 'x' }],
  });
  expect(answer.choices[0]?.message.content).toBe('local');
  expect(it.heard[0]![0]!.headers.authorization).toBeUndefined();
  expect(it.gateway.calls()).toMatchObject([{ input: 7, output: 3, cost_micros: 37 }]);
});
