import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Coppice } from '../src/node/coppice.ts';

// The daemon itself is tested in tests/e2e; this server answers what a healthy daemon never would.
let directory: string;
let socket: string;
let server: http.Server;
let answer: http.RequestListener;
let coppice: Coppice;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'coppice-sdk-'));
  socket = join(directory, 's.sock');
  server = http.createServer((request, response) => answer(request, response));
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  coppice = new Coppice({ socket, token: 'secret' });
});
afterEach(async () => {
  coppice.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(directory, { recursive: true, force: true });
});

test('a problem that the daemon answers is the error that it threw', async () => {
  const problem = {
    type: 'about:blank',
    title: 'In use',
    status: 409,
    code: 'in_use',
    detail: 'image host is in use by web',
    hint: 'Remove web first.',
    retryable: false,
    details: { used_by: ['web'] },
  };
  answer = (_, response) => {
    response.writeHead(409, { 'content-type': 'application/problem+json' }).end(JSON.stringify(problem));
  };
  await expect(coppice.images.remove('host')).rejects.toMatchObject({
    name: 'CoppiceError',
    code: 'in_use',
    message: 'image host is in use by web',
    hint: 'Remove web first.',
    details: { used_by: ['web'] },
  });
});

test('an answer that is no problem document still says what was asked', async () => {
  answer = (_, response) => response.writeHead(502).end('<html>bad gateway</html>');
  await expect(coppice.health()).rejects.toMatchObject({
    code: 'unavailable',
    message: expect.stringContaining('GET /v1/health'),
  });
});

test('an answer that is no JSON is no daemon’s', async () => {
  answer = (_, response) => response.end('<html>sign in first</html>');
  await expect(coppice.health()).rejects.toMatchObject({
    code: 'unavailable',
    message: expect.stringContaining('GET /v1/health'),
  });
});

test('calls one after another share a connection and carry the token', async () => {
  const seen = new Set<unknown>();
  const tokens = new Set<string | undefined>();
  answer = (request, response) => {
    seen.add(request.socket);
    tokens.add(request.headers.authorization);
    response.end('{}');
  };
  for (let count = 0; count < 5; count += 1) await coppice.health();
  expect(seen.size).toBe(1);
  expect([...tokens]).toEqual(['Bearer secret']);
});

test('a call can be cancelled while it waits', async () => {
  const controller = new AbortController();
  answer = () => controller.abort();
  await expect(coppice.health({ signal: controller.signal })).rejects.toMatchObject({ code: 'cancelled' });
});

test('an answer that breaks off is an error, not a short answer', async () => {
  answer = (_, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"status"', () => response.destroy());
  };
  await expect(coppice.health()).rejects.toMatchObject({ code: 'unavailable' });
});

test('no daemon at the address says how to start one', async () => {
  const nobody = new Coppice({ socket: join(directory, 'none.sock') });
  await expect(nobody.health()).rejects.toMatchObject({
    code: 'unavailable',
    hint: expect.stringContaining('coppice up'),
  });
});

test('a stream of events goes on after the last one seen when the connection was lost', async () => {
  const asked: (string | null)[] = [];
  answer = (request, response) => {
    const after = new URL(request.url ?? '', 'http://localhost').searchParams.get('after');
    asked.push(after);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const seq = Number(after) + 1;
    response.write(`id: ${seq}\ndata: ${JSON.stringify({ seq, type: 'test' })}\n\n`, () =>
      response.destroy(),
    );
  };
  const seen: number[] = [];
  for await (const { seq } of coppice.events.stream({ after: 3 })) {
    seen.push(seq);
    if (seen.length === 3) break;
  }
  expect(seen).toEqual([4, 5, 6]);
  expect(asked).toEqual(['3', '4', '5']);
});
