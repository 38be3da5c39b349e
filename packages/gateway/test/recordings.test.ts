import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { type RecordingOptions, Recordings, ScriptedUpstream } from '../src/index.ts';
import { close, listen, type RunningGateway, realKey, startGateway, urlOf } from './running-gateway.ts';

const temporary = (): { readonly path: string } & Disposable => {
  const path = mkdtempSync(join(tmpdir(), 'coppice-recordings-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
};

const priceFile = { models: { '*': { input: 1, output: 10 } } };

/** Records what upstreams at this address say. */
const recording = (
  url: string,
  directory: string,
  more: Partial<RecordingOptions> = {},
): Promise<RunningGateway> =>
  startGateway({
    config: {
      upstreams: [
        { name: 'a', kind: 'anthropic', url, secret: 'k' },
        { name: 'o', kind: 'openai', url, secret: 'k' },
        { name: 'g', kind: 'google', url, secret: 'k' },
      ],
    },
    priceFile,
    recordings: new Recordings({ directory, mode: 'record', ...more }),
  });

/** Plays back without any upstream or price. */
const replaying = (directory: string, more: Partial<RecordingOptions> = {}): Promise<RunningGateway> =>
  startGateway({
    config: { upstreams: [] },
    recordings: new Recordings({ directory, mode: 'replay', ...more }),
  });

const messages = [{ role: 'user' as const, content: 'hi' }];

/** What the libraries get for one question in each dialect, without what differs from call to call. */
async function askAll(url: string): Promise<unknown[]> {
  const anthropic = new Anthropic({ baseURL: url, apiKey: 'placeholder', maxRetries: 0 });
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  const google = new GoogleGenAI({ apiKey: 'placeholder', httpOptions: { baseUrl: url } });
  const chunks: unknown[] = [];
  const stream = await openai.chat.completions.create({ model: 'm', messages, stream: true });
  for await (const chunk of stream) chunks.push(chunk);
  const answer = await openai.responses.stream({ model: 'm', input: 'hi' }).finalResponse();
  const content = await google.models.generateContent({ model: 'm', contents: 'hi' });
  return [
    await anthropic.messages.stream({ model: 'm', max_tokens: 9000, messages }).finalMessage(),
    chunks,
    { output: answer.output, usage: answer.usage },
    { candidates: content.candidates, usage: content.usageMetadata },
  ];
}

test.each(['exact', 'order'] as const)(
  'what was recorded in every dialect is played back, %s',
  async (match) => {
    using directory = temporary();
    await using upstream = new ScriptedUpstream({
      steps: [
        { text: 'Hello ✓ world', tools: [{ name: 't', input: { a: 1 } }], usage: { input: 90, output: 30 } },
      ],
    });
    await using recorder = await recording(await upstream.listen(), directory.path);
    const recorded = await askAll(recorder.url);
    await using player = await replaying(directory.path, { match });
    expect(await askAll(player.url)).toEqual(recorded);
    // Tokens count as they did; nothing was paid.
    const rows = player.calls();
    expect(rows).toHaveLength(4);
    for (const row of rows)
      expect(row).toMatchObject({
        upstream: 'replay',
        input: 90,
        output: 30,
        cost_micros: 0,
        price_version: 'replay',
      });
  },
);

const post = (url: string, body: string): Promise<Response> =>
  fetch(`${url}/v1/messages`, { method: 'POST', body });

test('a request is the same whatever the order of its keys and the id of its session', async () => {
  using directory = temporary();
  await using upstream = new ScriptedUpstream({ by: 'order', steps: [{ text: 'one' }, { text: 'two' }] });
  await using recorder = await recording(await upstream.listen(), directory.path);
  const first = '{"model":"m","max_tokens":9,"messages":[],"metadata":{"user_id":"session-1"}}';
  const again = '{"metadata":{"user_id":"session-2"}, "messages":[], "max_tokens":9, "model":"m"}';
  await (await post(recorder.url, first)).text();
  await (await post(recorder.url, again)).text();
  await using player = await replaying(directory.path);
  // Asked twice, it has two answers; after that the last one stays.
  for (const text of ['one', 'two', 'two'])
    expect(await (await post(player.url, again)).json()).toMatchObject({ content: [{ text }] });
  const unknown = await post(player.url, first.replace('"messages":[]', '"messages":[1]'));
  expect(unknown.status).toBe(404);
  expect(await unknown.json()).toMatchObject({ type: 'error', error: { type: 'not_found_error' } });
});

test('recordings played by order end after the last one', async () => {
  using directory = temporary();
  await using upstream = new ScriptedUpstream({ by: 'order', steps: [{ text: 'one' }, { text: 'two' }] });
  await using recorder = await recording(await upstream.listen(), directory.path);
  const ask = (url: string, content: string): Promise<Response> =>
    post(url, JSON.stringify({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content }] }));
  for (const content of ['a', 'b']) await (await ask(recorder.url, content)).text();
  await using player = await replaying(directory.path, { match: 'order' });
  expect(await (await ask(player.url, 'x')).json()).toMatchObject({ content: [{ text: 'one' }] });
  expect(await (await ask(player.url, 'y')).json()).toMatchObject({ content: [{ text: 'two' }] });
  expect((await ask(player.url, 'z')).status).toBe(404);
});

test('a recording holds no secret, even where an upstream sends it back', async () => {
  using directory = temporary();
  const other = 'another "secret" value';
  const upstream = await listen((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'id-of-a-header' });
    response.write(`{"echo":"${realKey.slice(0, 9)}`);
    setTimeout(() => response.end(`${realKey.slice(9)}","other":${JSON.stringify(other)}}`), 30);
  });
  try {
    await using recorder = await recording(urlOf(upstream), directory.path, { secrets: () => [other] });
    const request = `{"model":"m","max_tokens":9,"messages":["${other.replaceAll('"', '')}"]}`;
    await (await post(recorder.url, request)).text();
    const [file] = readdirSync(directory.path);
    const path = join(directory.path, file!);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const text = readFileSync(path, 'utf8');
    const kept = JSON.parse(text) as { chunks: { base64: string }[] };
    const body = Buffer.concat(kept.chunks.map((chunk) => Buffer.from(chunk.base64, 'base64'))).toString();
    expect(JSON.parse(body)).toEqual({
      echo: '*'.repeat(realKey.length),
      other: '*'.repeat(JSON.stringify(other).length - 2),
    });
    for (const secret of [realKey, 'another', 'placeholder', 'id-of-a-header'])
      expect(text + body).not.toContain(secret);
  } finally {
    await close(upstream);
  }
});

test('an answer comes with the pauses that it had, or at once', async () => {
  using directory = temporary();
  await using upstream = new ScriptedUpstream({ steps: [{ text: 'abcdef', parts: 3, partDelayMs: 60 }] });
  await using recorder = await recording(await upstream.listen(), directory.path);
  const body = '{"model":"m","max_tokens":9,"stream":true,"messages":[]}';
  const text = await (await post(recorder.url, body)).text();
  const [file] = readdirSync(directory.path);
  const kept = JSON.parse(readFileSync(join(directory.path, file!), 'utf8')) as {
    chunks: { afterMs: number }[];
  };
  const lastMs = kept.chunks.at(-1)!.afterMs;
  expect(lastMs).toBeGreaterThan(100);
  await using timed = await replaying(directory.path, { timing: 'recorded' });
  const began = performance.now();
  expect(await (await post(timed.url, body)).text()).toBe(text);
  // A lower bound only: it may take longer on a busy machine, never less.
  expect(performance.now() - began).toBeGreaterThan(lastMs - 20);
  await using quick = await replaying(directory.path, { timing: 'at-once' });
  expect(await (await post(quick.url, body)).text()).toBe(text);
});

test('an answer that broke off or was an error is not recorded', async () => {
  using directory = temporary();
  let isError = false;
  const upstream = await listen((request, response) => {
    request.resume();
    if (isError) response.writeHead(400).end('{}');
    else {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {}\n\n');
      setTimeout(() => response.destroy(), 30);
    }
  });
  try {
    await using recorder = await recording(urlOf(upstream), directory.path);
    const body = '{"model":"m","max_tokens":9,"messages":[]}';
    await expect(post(recorder.url, body).then((answer) => answer.text())).rejects.toThrow();
    isError = true;
    expect((await post(recorder.url, body)).status).toBe(400);
    expect(readdirSync(directory.path)).toEqual([]);
  } finally {
    await close(upstream);
  }
});

test('a recording that cannot be written is told, and the answer arrives all the same', async () => {
  using directory = temporary();
  await using upstream = new ScriptedUpstream({ steps: [{ text: 'fine' }] });
  await using recorder = await recording(await upstream.listen(), join(directory.path, 'inner'));
  rmSync(join(directory.path, 'inner'), { recursive: true });
  const answer = await post(recorder.url, '{"model":"m","max_tokens":9,"messages":[]}');
  expect(await answer.json()).toMatchObject({ content: [{ text: 'fine' }] });
  expect(recorder.events).toContainEqual(expect.objectContaining({ type: 'recording.failed' }));
  expect(recorder.calls()).toMatchObject([{ outcome: 'complete' }]);
});

test('a file that is no recording is an answer with an error, and says which', async () => {
  using directory = temporary();
  await using upstream = new ScriptedUpstream({ steps: [{ text: 'x' }] });
  await using recorder = await recording(await upstream.listen(), directory.path);
  const body = '{"model":"m","max_tokens":9,"messages":[]}';
  await (await post(recorder.url, body)).text();
  const [file] = readdirSync(directory.path);
  writeFileSync(join(directory.path, file!), '{"format":9}');
  await using player = await replaying(directory.path);
  const answer = await post(player.url, body);
  expect(answer.status).toBe(502);
  expect(await answer.text()).toContain(file);
});
