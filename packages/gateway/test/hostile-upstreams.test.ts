import {
  get,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { AnswerReader } from '../src/models/answer-reader.ts';
import { anthropic } from '../src/models/dialects/anthropic.ts';
import { close, listen, type RunningGateway, startGateway, urlOf } from './running-gateway.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const start = {
  type: 'message_start',
  message: { id: 'm', model: 'm', usage: { input_tokens: 777, output_tokens: 1 } },
};
const delta = (text: string): string =>
  `data: ${JSON.stringify({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })}\n\n`;
const begin = `data: ${JSON.stringify(start)}\n\n`;

interface Stage extends AsyncDisposable {
  readonly gateway: RunningGateway;
  ask(): Promise<IncomingMessage>;
}

async function stage(listener: RequestListener, upstream: Record<string, unknown> = {}): Promise<Stage> {
  const server = await listen(listener);
  const gateway = await startGateway({
    config: { upstreams: [{ name: 'u', kind: 'anthropic', url: urlOf(server), retries: 0, ...upstream }] },
    priceFile: { models: { m: { input: 1, output: 10 } } },
  });
  return {
    gateway,
    ask: () =>
      post(`${gateway.url}/v1/messages`, '{"model":"m","max_tokens":1000,"stream":true,"messages":[]}'),
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await close(server);
    },
  };
}

/** A client that reads only when it is told to. */
const post = (url: string, body: string): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const request = httpRequest(url, { method: 'POST', agent: false }, resolve);
    request.once('error', reject);
    request.end(body);
  });

/** What came, and whether it came to a proper end. */
const readAll = async (
  answer: IncomingMessage,
): Promise<{ bytes: number; text: string; isWhole: boolean }> => {
  let bytes = 0;
  let text = '';
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (text.length < 1_000_000) text += chunk.toString('latin1');
    }
    return { bytes, text, isWhole: answer.complete };
  } catch {
    return { bytes, text, isWhole: false };
  }
};

/** The ledger once nothing runs any more. */
const settledCalls = async (gateway: RunningGateway): Promise<Record<string, unknown>[]> => {
  for (;;) {
    const calls = gateway.calls();
    if (calls.length > 0 && calls.every((call) => call.outcome !== null)) return calls;
    await delay(10);
  }
};

const stream = (response: ServerResponse): ServerResponse =>
  response.writeHead(200, { 'content-type': 'text/event-stream' });

describe('an upstream that', () => {
  test('never answers is given up, in the vendor’s form of error', async () => {
    await using it = await stage(() => {}, { first_byte_timeout_s: 0.2 });
    const answer = await it.ask();
    expect(answer.statusCode).toBe(502);
    expect(JSON.parse((await readAll(answer)).text)).toMatchObject({
      type: 'error',
      error: { type: 'api_error' },
    });
    expect(await settledCalls(it.gateway)).toMatchObject([{ outcome: 'cut', estimated: 1, output: 0 }]);
  });

  test('stalls in the middle is given up, and its client sees that the answer broke off', async () => {
    await using it = await stage(
      (_request, response) => stream(response).write(begin + delta('x'.repeat(400))),
      {
        stall_timeout_s: 0.2,
      },
    );
    const read = await readAll(await it.ask());
    expect(read.isWhole).toBe(false);
    expect(read.text).toContain('xxxx');
    // The input is what it said, the output is what was seen: 400 bytes are about 100 tokens.
    expect(await settledCalls(it.gateway)).toMatchObject([
      { outcome: 'cut', estimated: 1, input: 777, output: 100, cost_micros: 777 + 1000 },
    ]);
  });

  test('breaks off in the middle leaves a broken answer and what was seen in the ledger', async () => {
    await using it = await stage((_request, response) => {
      stream(response).write(begin + delta('seen'));
      setTimeout(() => response.destroy(), 50);
    });
    expect((await readAll(await it.ask())).isWhole).toBe(false);
    expect(await settledCalls(it.gateway)).toMatchObject([
      { outcome: 'cut', estimated: 1, input: 777, output: 1 },
    ]);
  });

  test.each([1_000_000, 10])(
    'lies about its length (%d) breaks its own answer and nothing else',
    async (length) => {
      await using it = await stage((_request, response) => {
        const body = JSON.stringify({
          type: 'message',
          model: 'm',
          usage: { input_tokens: 1, output_tokens: 2 },
        });
        response.socket!.end(
          `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n${body}`,
        );
      });
      for (let call = 0; call < 2; call += 1) {
        const read = await readAll(await it.ask());
        if (length > 100) expect(read.isWhole).toBe(false);
        else expect(read.bytes).toBe(length);
      }
      expect((await settledCalls(it.gateway)).map((call) => call.outcome)).toEqual(
        length > 100 ? ['cut', 'cut'] : ['complete', 'complete'],
      );
    },
  );

  test.each([
    ['no JSON', 'data: {"usage": {"input_tokens": 5, "output_tokens": \n\ndata: <html>\n\n'],
    [
      'counts that are none',
      'data: {"type":"message_delta","usage":{"input_tokens":-5,"output_tokens":"all"}}\n\n',
    ],
    [
      'a count beyond reason',
      'data: {"type":"message_delta","usage":{"input_tokens":1e300,"output_tokens":9e15}}\n\n',
    ],
    ['nothing at all', ''],
  ])('sends %s has it passed on as it is, and its call is estimated', async (_what, text) => {
    await using it = await stage((_request, response) => stream(response).end(text));
    const read = await readAll(await it.ask());
    expect(read).toMatchObject({ text, isWhole: true });
    const [call] = await settledCalls(it.gateway);
    expect(call).toMatchObject({ outcome: 'complete' });
    expect(Number(call!.input)).toBeLessThan(1_000);
    expect(Number(call!.output)).toBeLessThan(1_000);
  });

  test('sends 100 MB without a line end has them passed on, with the memory of a few chunks', async () => {
    const chunk = Buffer.alloc(1024 * 1024, 'x');
    await using it = await stage(async (_request, response) => {
      stream(response).write('data: {"type":"content_block_delta","delta":{"text":"');
      for (let sent = 0; sent < 100; sent += 1)
        if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
      response.end();
    });
    const before = process.memoryUsage();
    const answer = await it.ask();
    let bytes = 0;
    let most = 0;
    let looked = 0;
    for await (const part of answer as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes - looked < 8 * chunk.length) continue;
      looked = bytes;
      // What nobody holds any more does not count.
      collectGarbage();
      const now = process.memoryUsage();
      most = Math.max(most, now.heapUsed - before.heapUsed + (now.external - before.external));
    }
    expect(bytes).toBeGreaterThan(100 * chunk.length);
    expect(most).toBeLessThan(40 * 1024 * 1024);
    expect(await settledCalls(it.gateway)).toMatchObject([{ outcome: 'complete', estimated: 1 }]);
  });
});

test.each([
  ['one long string', '{"delta":{"text":"', 'y'],
  ['one long number', '{"usage":', '1'],
  ['a usage without end', '{"usage":{"a":"', 'z'],
  ['a key without end', '{"', 'k'],
  ['nesting without end', '', '['],
  ['escapes without end', '{"usage":"', '\\\\'],
  ['an event line that is not data', '\n\nevent: ', 'e'],
])('a reader keeps next to nothing of %s', (_what, head, filler) => {
  const reader = new AnswerReader(anthropic, 'text/event-stream');
  const chunk = Buffer.alloc(1024 * 1024, filler);
  reader.feed(Buffer.from(`data: ${head}`));
  const before = process.memoryUsage();
  for (let sent = 0; sent < 100; sent += 1) reader.feed(chunk);
  const after = process.memoryUsage();
  expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(16 * 1024 * 1024);
  // It still reads what comes after it.
  reader.feed(
    Buffer.from('\n\ndata: {"type":"message_delta","usage":{"input_tokens":3,"output_tokens":4}}\n\n'),
  );
  expect(reader.isFinal).toBe(true);
  expect(reader.usage).toMatchObject({ input: 3, output: 4 });
});

describe('a client', () => {
  test('that goes away ends the call of the upstream at once, and pays for what was seen', async () => {
    let wasLeft: (() => void) | undefined;
    const left = new Promise<void>((resolve) => (wasLeft = resolve));
    await using it = await stage((_request, response) => {
      stream(response).write(begin + delta('z'.repeat(4_000)));
      response.once('close', () => wasLeft!());
    });
    const answer = await it.ask();
    await new Promise((resolve) => answer.once('data', resolve));
    answer.destroy();
    await left;
    expect(await settledCalls(it.gateway)).toMatchObject([
      { outcome: 'cancelled', estimated: 1, input: 777, output: 1_000 },
    ]);
  });

  test('that goes away before the answer begins pays for its input, as it may have been billed', async () => {
    let wasLeft: (() => void) | undefined;
    const left = new Promise<void>((resolve) => (wasLeft = resolve));
    await using it = await stage((request, response) => {
      request.resume();
      response.once('close', () => wasLeft!());
    });
    const asked = it.ask().catch(() => undefined);
    const leaving = httpRequest(`${it.gateway.url}/v1/messages`, { method: 'POST', agent: false });
    leaving.on('error', () => {});
    leaving.end('{"model":"m","max_tokens":1000,"messages":[]}');
    while (it.gateway.calls().length < 2) await delay(10);
    leaving.destroy();
    await left;
    while (it.gateway.calls().every((call) => call.outcome === null)) await delay(10);
    const [gone] = it.gateway.calls().filter((call) => call.outcome !== null);
    expect(gone).toMatchObject({ outcome: 'cancelled', estimated: 1, output: 0 });
    expect(Number(gone!.input)).toBeGreaterThan(0);
    void asked;
  });

  test('that reads slowly slows its upstream down, and gets every byte', async () => {
    const chunk = Buffer.alloc(1024 * 1024, 'x');
    const total = 64;
    let sent = 0;
    await using it = await stage(async (_request, response) => {
      stream(response);
      for (; sent < total; sent += 1)
        if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
      response.end();
    });
    const answer = await it.ask();
    answer.pause();
    // It stops when the buffers of the sockets are full; wait until it has not moved for a while.
    let before = -1;
    while (before !== sent) {
      before = sent;
      await delay(300);
    }
    expect(sent).toBeLessThan(total);
    const read = await readAll(answer);
    expect(read).toMatchObject({ bytes: total * chunk.length, isWhole: true });
  });
});

test('1,000 streams at once all arrive whole and are all accounted', async () => {
  const waiting: ServerResponse[] = [];
  const count = 1_000;
  await using it = await stage((request, response) => {
    request.resume();
    stream(response).write(begin);
    waiting.push(response);
    if (waiting.length < count) return;
    // All are open at the same time; now each gets its answer.
    for (const [index, one] of waiting.entries())
      one.end(
        `${delta(`answer ${index}`)}data: ${JSON.stringify({ type: 'message_delta', usage: { output_tokens: index } })}\n\n`,
      );
  });
  const read = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const headers = { 'x-test-caller': JSON.stringify({ sandbox: `s${index % 20}` }) };
      const answer = await new Promise<IncomingMessage>((resolve, reject) => {
        const request = httpRequest(
          `${it.gateway.url}/v1/messages`,
          { method: 'POST', agent: false, headers },
          resolve,
        );
        request.once('error', reject);
        request.end('{"model":"m","max_tokens":1000,"stream":true,"messages":[]}');
      });
      return readAll(answer);
    }),
  );
  expect(read.every((one) => one.isWhole && one.text.includes('answer '))).toBe(true);
  const calls = await settledCalls(it.gateway);
  expect(calls).toHaveLength(count);
  expect(calls.map((call) => call.output).toSorted((one, other) => Number(one) - Number(other))).toEqual(
    Array.from({ length: count }, (_, index) => index),
  );
  expect(calls.every((call) => call.estimated === 0 && call.input === 777)).toBe(true);
});

test('a sandbox has a bounded number of calls at once', async () => {
  await using it = await stage((_request, response) => stream(response).write(begin));
  const open = await Promise.all(Array.from({ length: 128 }, () => it.ask()));
  const refused = await it.ask();
  expect(refused.statusCode).toBe(429);
  const other = await new Promise<IncomingMessage>((resolve) => {
    get(`${it.gateway.url}/v1/models`, { agent: false }, resolve);
  });
  expect(other.statusCode).toBe(200);
  for (const answer of open) answer.destroy();
  refused.destroy();
  other.destroy();
});
