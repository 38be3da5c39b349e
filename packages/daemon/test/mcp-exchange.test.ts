import { createServer, type Server as HttpServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json, text } from 'node:stream/consumers';
import { Server } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { asSingleRequest, SingleExchange } from '../src/doors/mcp/single-exchange.ts';

const call = {
  jsonrpc: '2.0',
  id: 7,
  method: 'tools/call',
  params: { name: 'wait', arguments: {} },
} as const;

describe('a single exchange', () => {
  let http: HttpServer;
  let streamAfterMs: number;
  let work: (report: () => Promise<void>, signal: AbortSignal) => Promise<void>;

  beforeAll(async () => {
    http = createServer((_request, response) => {
      const server = new Server({ name: 'x', version: '1' }, { capabilities: { tools: {} } });
      server.setRequestHandler('tools/call', async (_call, { mcpReq }) => {
        const params = { progressToken: 1, progress: 1 };
        await work(() => mcpReq.notify({ method: 'notifications/progress', params }), mcpReq.signal);
        return { content: [] };
      });
      const exchange = new SingleExchange(response, { streamAfterMs });
      void server.connect(exchange).then(() => exchange.serve(call));
    });
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  });
  afterAll(async () => {
    http?.closeAllConnections();
    await new Promise((resolve) => (http === undefined ? resolve(undefined) : http.close(resolve)));
  });

  const ask = (signal?: AbortSignal): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const { port } = http.address() as AddressInfo;
      const sent = request({ port, host: '127.0.0.1', ...(signal === undefined ? {} : { signal }) }, resolve);
      sent.on('error', reject);
      sent.end();
    });
  const answer = { jsonrpc: '2.0', id: 7, result: { content: [] } };
  const events = (body: string): unknown[] =>
    body.split('\n').flatMap((line) => (line.startsWith('data: ') ? [JSON.parse(line.slice(6))] : []));

  test('is one JSON document where the answer is all there is to say', async () => {
    streamAfterMs = 60_000;
    work = async () => {};
    const response = await ask();
    expect(response.headers['content-type']).toBe('application/json');
    expect(await json(response)).toEqual(answer);
  });

  test('becomes a stream with the first notification, and ends with the answer', async () => {
    streamAfterMs = 60_000;
    work = (report) => report();
    const response = await ask();
    expect(response.headers['content-type']).toBe('text/event-stream');
    expect(events(await text(response))).toEqual([
      expect.objectContaining({ method: 'notifications/progress' }),
      answer,
    ]);
  });

  test('begins to answer before the work is done where that takes long', async () => {
    streamAfterMs = 1;
    const { promise, resolve } = Promise.withResolvers<void>();
    work = () => promise;
    const response = await ask();
    expect(response.headers['content-type']).toBe('text/event-stream');
    resolve();
    expect(events(await text(response))).toEqual([answer]);
  });

  test('ends the work of a caller that leaves', async () => {
    streamAfterMs = 60_000;
    const began = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    work = (_report, signal) => {
      signal.addEventListener('abort', () => ended.resolve());
      began.resolve();
      return ended.promise;
    };
    const leave = new AbortController();
    const asked = ask(leave.signal);
    await began.promise;
    leave.abort();
    await expect(asked).rejects.toThrow();
    await ended.promise;
  });
});

test('requests that are not plain and alone are left to the library', () => {
  const headers = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
  expect(asSingleRequest('POST', headers, call)).toBe(call);
  expect(asSingleRequest('POST', { ...headers, 'mcp-protocol-version': '2025-06-18' }, call)).toBe(call);
  const { id: _id, ...notification } = call;
  const modern = {
    ...call,
    params: { ...call.params, _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } },
  };
  for (const [method, given, body] of [
    ['GET', headers, undefined],
    ['POST', headers, [call]],
    ['POST', headers, notification],
    ['POST', headers, modern],
    ['POST', { ...headers, accept: 'application/json' }, call],
    ['POST', { ...headers, 'content-type': 'text/plain' }, call],
    ['POST', { ...headers, 'mcp-protocol-version': '1999-01-01' }, call],
    ['POST', { ...headers, 'mcp-protocol-version': '2026-07-28' }, call],
  ] as const)
    expect(asSingleRequest(method, given, body)).toBeUndefined();
});
