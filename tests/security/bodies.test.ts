import { setTimeout as sleep } from 'node:timers/promises';
import { type Route, routes } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HalfRequest } from './half-request.ts';
import { jsonCall, rawCall } from './raw-call.ts';

type Headers = Readonly<Record<string, string>>;

const table = Object.entries(routes as Record<string, Route>);
const withBody = table.filter(([, { method }]) => method !== 'GET');
const declared = (bytes: number): Headers => ({ 'content-length': String(bytes) });
const chunked: Headers = { 'transfer-encoding': 'chunked' };
const framings = [declared(45 * 1024 * 1024), chunked];

const pathOf = (route: Route, sandbox: string): string =>
  route.path
    .replace(':sandbox', sandbox)
    .replaceAll(/:(job|terminal|port|pull)/g, '1')
    .replaceAll(':sha', '0'.repeat(40))
    .replaceAll(/:\w+/g, 'some');

const chunk = (data: string): string => `${Buffer.byteLength(data).toString(16)}\r\n${data}\r\n`;

describe('a body', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const exec = ({ id } = sandbox) => `/v1/sandboxes/${id}/exec`;
  const file = ({ id } = sandbox) => `/v1/sandboxes/${id}/files/content?path=/root/half`;

  /** Sends a head that promises a body, and then only as much of it as is given. */
  const begin = async (
    [method, path]: readonly [string, string],
    token: string | undefined,
    headers: Headers,
    body = '',
    { url } = daemon,
  ): Promise<HalfRequest> => {
    const request = await HalfRequest.open(url);
    return request
      .head(`${method} ${path} HTTP/1.1`, {
        authorization: token === undefined ? undefined : `Bearer ${token}`,
        'content-type': 'application/json',
        ...headers,
      })
      .send(body);
  };
  const statusOf = async (...given: Parameters<typeof begin>): Promise<number> => {
    using request = await begin(...given);
    return await request.status();
  };

  test('is not waited for where the caller has no valid token: every route and MCP answer at once', async () => {
    const doors = [
      ...withBody.map(([, route]) => [route.method, pathOf(route, sandbox.id)] as const),
      ['POST', '/mcp'] as const,
    ];
    expect(doors.length).toBeGreaterThan(25);
    for (const door of doors)
      for (const token of [undefined, 'wrong'])
        for (const framing of framings)
          expect(await statusOf(door, token, framing), door.join(' ')).toBe(401);
  });

  test('is not waited for where the token does not reach that far, or where there is nothing', async () => {
    const ofAdmin = withBody.filter(([, route]) => route.scope === 'admin');
    for (const [name, route] of ofAdmin)
      for (const framing of framings) {
        const door = [route.method, pathOf(route, sandbox.id)] as const;
        expect(await statusOf(door, sandbox.token, framing), name).toBe(403);
      }
    for (const framing of framings)
      expect(await statusOf(['POST', '/nowhere'], daemon.token, framing)).toBe(404);
  });

  test('that is larger than its call needs is refused by what its head says, and else when it has grown too large', async () => {
    const small = ['POST', `/v1/sandboxes/${sandbox.id}/stop`] as const;
    expect(await statusOf(small, daemon.token, declared(100_000))).toBe(413);
    expect(await statusOf(small, daemon.token, chunked, chunk(`"${'x'.repeat(100_000)}`))).toBe(413);
    for (const large of [exec(), '/mcp'])
      expect(await statusOf(['POST', large], daemon.token, declared(45 * 1024 * 1024)), large).toBe(413);
    expect((await sandbox.inspect()).state).toBe('running');
  });

  test('of very many or deeply nested values is refused before the rest of it has come', async () => {
    for (const door of [exec(), '/mcp'])
      for (const start of ['[]', '[', '{"a":', '0'].map((part) => `[${`${part},`.repeat(50_000)}`))
        expect(await statusOf(['POST', door], sandbox.token, declared(30_000_000), start), door).toBe(413);
  });

  test('of the largest size that a command takes on its input is taken', async () => {
    const stdin = '"\n'.repeat(8 * 1024 * 1024);
    const command = ['sh', '-c', 'wc -c'];
    const call = jsonCall({ method: 'POST', path: exec(), token: sandbox.token }, { command, stdin });
    const { status, text } = await rawCall(daemon.url, call);
    expect([status, JSON.parse(text).stdout?.trim()]).toEqual([200, String(stdin.length)]);
  });

  test('that stops halfway is not waited for, and a file that comes slowly but steadily is', async () => {
    const limits = { request_timeout_s: 2, stalled_sender_s: 5 };
    await using hasty = await RunningDaemon.start({ config: { limits } });
    await using box = await hasty.client.sandboxes.create();
    const half = '{"command": "tr';
    const documents = [exec(box), '/mcp'].map((path) =>
      begin(['POST', path], hasty.token, declared(1000), half, hasty),
    );
    const upload = begin(['PUT', file(box)], hasty.token, declared(1000), 'half of a file', hasty);
    for (const opened of [...documents, upload]) {
      using request = await opened;
      expect(await request.status()).toBe(504);
      await request.closed();
    }
    await expect(box.files.read('/root/half')).rejects.toMatchObject({ code: 'not_found' });

    using slow = await begin(['PUT', file(box)], box.token, declared(5), '', hasty);
    for (const letter of 'abcde') {
      await sleep(700);
      slow.send(letter);
    }
    expect(await slow.status()).toBe(200);
    expect(Buffer.from(await box.files.read('/root/half')).toString()).toBe('abcde');
  });

  test('that was refused and stops halfway does not keep its connection', async () => {
    using refused = await begin(['POST', exec()], 'wrong', declared(1000), '{');
    expect(await refused.status()).toBe(401);
    await refused.closed();
  });

  test('that a refused caller goes on to send is not read without end', async () => {
    using request = await begin(['PUT', file()], 'wrong', chunked);
    expect(await request.status()).toBe(401);
    const piece = chunk('x'.repeat(65_536));
    const sending = setInterval(() => request.send(piece), 1);
    await request.closed();
    clearInterval(sending);
  });
});
