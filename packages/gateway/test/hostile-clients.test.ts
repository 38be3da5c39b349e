import { execFile } from 'node:child_process';
import { request as httpRequest } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import { type Heard, ScriptedUpstream } from '../src/index.ts';
import { close, listen, type RunningGateway, realKey, startGateway, urlOf } from './running-gateway.ts';

interface Stage extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly heard: Heard[];
}

async function stage(): Promise<Stage> {
  const heard: Heard[] = [];
  const upstream = new ScriptedUpstream({ steps: [{ text: 'hello' }] }, (one) => heard.push(one));
  const url = await upstream.listen();
  const gateway = await startGateway({
    config: {
      upstreams: [
        { name: 'a', kind: 'anthropic', url, secret: 'k' },
        { name: 'c', kind: 'openai', url, secret: 'k' },
        { name: 'g', kind: 'google', url, secret: 'k' },
      ],
      default: { allow: ['cheap'] },
    },
    priceFile: { models: { '*': { input: 1, output: 1 } } },
    limits: { requestBytes: 100_000 },
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

/** Sends a path as it is; `fetch` would tidy it up. */
const raw = (url: string, path: string, body: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const request = httpRequest({ hostname, port, path, method: 'POST', agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode!);
    });
    request.once('error', reject);
    request.end(body);
  });

describe('a model that is not allowed cannot be asked for', () => {
  test.each([
    ['twice in a request', '{"model":"cheap","model":"dear"}', 400],
    ['twice, the second spelt with an escape', '{"model":"cheap","m\\u006fdel":"dear"}', 400],
    ['again in another case', '{"model":"cheap","Model":"dear"}', 400],
    ['with an escape alone', '{"m\\u006fdel":"dear"}', 403],
    ['after a comment', '{"model":"cheap"/*,"model":"dear"*/}', 400],
    ['in a second document', '{"model":"cheap"}{"model":"dear"}', 400],
    ['in quotes of another kind', `{"model":"cheap",'model':"dear"}`, 400],
    ['as something else than a name', '{"model":["dear"]}', 400],
    ['as a path', '{"model":"../dear"}', 400],
    ['by a name without end', `{"model":"${'x'.repeat(10_000)}"}`, 400],
    ['in an array', '[{"model":"cheap"}]', 400],
    ['by nothing', '', 400],
    ['deep inside', `{"model":"cheap","messages":${'['.repeat(600)}${']'.repeat(600)}}`, 400],
  ])('not even %s', async (_how, body, status) => {
    await using it = await stage();
    const answer = await fetch(`${it.gateway.url}/v1/messages`, { method: 'POST', body });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ type: 'error', error: { message: expect.any(String) } });
    expect(it.heard).toEqual([]);
    expect(it.gateway.calls()).toEqual([]);
  });

  test('not even in the path of Gemini', async () => {
    await using it = await stage();
    for (const model of ['dear', '..%2Fdear', 'cheap%2F..%2Fdear', 'cheap%00', 'che%61p%3Agen'])
      expect(await raw(it.gateway.url, `/v1beta/models/${model}:generateContent`, '{}')).not.toBe(200);
    expect(it.heard).toEqual([]);
    expect(
      await raw(it.gateway.url, '/v1beta/models/cheap:generateContent?key=placeholder&alt=json', '{}'),
    ).toBe(200);
    expect(it.heard.map((one) => one.path)).toEqual(['/v1beta/models/cheap:generateContent?alt=json']);
  });
});

test('nothing but the calls of models goes to an upstream', async () => {
  await using it = await stage();
  for (const path of [
    '/v1/files',
    '/v1/organizations/api_keys',
    '/v1/messages/../files',
    '/v1/messages/batches',
    '//v1/messages',
    '/v1/messages/',
    '/v1%2Fmessages',
    'http://elsewhere.example/v1/messages',
    '/v1beta/models/cheap:embedContent',
    '*',
  ])
    expect(await raw(it.gateway.url, path, '{"model":"cheap"}'), path).toBe(404);
  expect(it.heard).toEqual([]);
});

test('headers that hold keys, say who pays or are for one connection stay here', async () => {
  await using it = await stage();
  const answer = await fetch(`${it.gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: 'Bearer placeholder-1',
      'x-api-key': 'placeholder-2',
      'x-goog-api-key': 'placeholder-3',
      'openai-organization': 'org-of-somebody',
      'openai-project': 'proj-of-somebody',
      cookie: 'session=1',
      'x-forwarded-for': '10.0.0.1',
      'accept-encoding': 'gzip',
      'x-stainless-lang': 'js',
    },
    body: '{"model":"cheap","messages":[]}',
  });
  expect(answer.status).toBe(200);
  const { headers } = it.heard[0]!;
  expect(JSON.stringify(headers)).not.toMatch(/placeholder|somebody|session|10\.0\.0\.1/);
  expect(headers).toMatchObject({
    authorization: `Bearer ${realKey}`,
    'x-stainless-lang': 'js',
    'accept-encoding': 'identity',
  });
});

test('a body that is too large or compressed is refused, and the next request is not disturbed', async () => {
  await using it = await stage();
  const url = `${it.gateway.url}/v1/messages`;
  const large = JSON.stringify({ model: 'cheap', messages: ['x'.repeat(200_000)] });
  const post = async (
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ): Promise<number> => {
    try {
      return (await fetch(url, { method: 'POST', body, headers })).status;
    } catch {
      return 0; // the connection was closed before all of it was sent
    }
  };
  expect([413, 0]).toContain(await post(large));
  const unannounced = new ReadableStream({
    start(controller) {
      for (let sent = 0; sent < 4; sent += 1) controller.enqueue(Buffer.alloc(60_000, ' '));
      controller.close();
    },
  });
  const init = { method: 'POST', body: unannounced, duplex: 'half' } as RequestInit;
  expect([413, 0]).toContain(
    await fetch(url, init).then(
      (answer) => answer.status,
      () => 0,
    ),
  );
  expect(await post(gzipSync('{"model":"cheap"}'), { 'content-encoding': 'gzip' })).toBe(400);
  expect(await post('{"model":"cheap","messages":[]}')).toBe(200);
  expect(it.heard).toHaveLength(1);
});

test('requests that wait are bounded in memory, for each sandbox by itself', async () => {
  const waiting: (() => void)[] = [];
  const upstream = await listen((request, response) => {
    request.resume();
    waiting.push(() => response.writeHead(200, { 'content-type': 'application/json' }).end('{}'));
  });
  try {
    await using gateway = await startGateway({
      config: { upstreams: [{ name: 'a', kind: 'anthropic', url: urlOf(upstream) }] },
      priceFile: { models: { '*': { input: 1, output: 1 } } },
      limits: { bodyBytesAtOncePerSandbox: 250_000, bodyBytesAtOnce: 300_000 },
    });
    const ask = async (sandbox: string): Promise<number> => {
      const body = JSON.stringify({ model: 'm', messages: ['x'.repeat(100_000)] });
      const headers = { 'x-test-caller': JSON.stringify({ sandbox }) };
      try {
        return (await fetch(`${gateway.url}/v1/messages`, { method: 'POST', headers, body })).status;
      } catch {
        return 429; // the connection was closed before all of it was sent
      }
    };
    const two = [ask('greedy'), ask('greedy')];
    await vi.waitUntil(() => waiting.length === 2, { timeout: 60_000 });
    expect(await ask('greedy')).toBe(429);
    expect(await ask('other')).toBe(429);
    for (const answer of waiting.splice(0)) answer();
    expect(await Promise.all(two)).toEqual([200, 200]);
    const again = ask('greedy');
    await vi.waitUntil(() => waiting.length === 1, { timeout: 60_000 });
    waiting[0]!();
    expect(await again).toBe(200);
  } finally {
    await close(upstream);
  }
});

test('answers in the background, which nobody could meter, are refused', async () => {
  await using it = await stage();
  const body = '{"model":"cheap","input":"hi","background":true}';
  const answer = await fetch(`${it.gateway.url}/v1/responses`, { method: 'POST', body });
  expect(answer.status).toBe(400);
  expect(it.heard).toEqual([]);
});

test('a ledger that cannot be written lets nothing leave, and ends no gateway', async () => {
  await using it = await stage();
  const body = '{"model":"cheap","messages":[]}';
  const post = (): Promise<Response> => fetch(`${it.gateway.url}/v1/messages`, { method: 'POST', body });
  it.gateway.database.exec(
    'CREATE TRIGGER no_room BEFORE INSERT ON begun BEGIN SELECT RAISE(ABORT, "no room"); END',
  );
  const refused = await post();
  expect(refused.status).toBe(502);
  expect(await refused.json()).toMatchObject({ type: 'error', error: { message: 'the gateway failed' } });
  expect(it.heard).toEqual([]);
  it.gateway.database.exec('DROP TRIGGER no_room');
  it.gateway.database.exec(
    'CREATE TRIGGER no_room BEFORE INSERT ON settled BEGIN SELECT RAISE(ABORT, "no room"); END',
  );
  await expect(post().then((answer) => answer.text())).rejects.toThrow();
  it.gateway.database.exec('DROP TRIGGER no_room');
  expect((await post()).status).toBe(200);
  // The call that could not be settled is settled at the next start.
  expect(it.gateway.ledger.recover()).toBe(1);
});

test('curl streams through the gateway byte for byte', async ({ skip }) => {
  await using it = await stage();
  const run = (url: string): Promise<string | undefined> =>
    new Promise((resolve) => {
      const body = '{"model":"cheap","max_tokens":9,"stream":true,"messages":[]}';
      const key = 'x-api-key: placeholder';
      execFile('curl', ['-sN', '-H', key, '-d', body, url], (error, stdout) => {
        resolve((error as NodeJS.ErrnoException | null)?.code === 'ENOENT' ? undefined : stdout);
      });
    });
  const through = await run(`${it.gateway.url}/v1/messages`);
  if (through === undefined) skip('curl is not installed');
  const heard = it.heard[0]!;
  expect(heard.body).toBe('{"model":"cheap","max_tokens":9,"stream":true,"messages":[]}');
  const direct = await run(`http://${heard.headers.host}/v1/messages`);
  expect(through).toContain('event: message_stop');
  // Each answer has a number of its own.
  expect(through?.replaceAll('00000001', '00000002')).toBe(direct);
});
