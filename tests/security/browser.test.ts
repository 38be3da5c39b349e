import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rawCall } from './raw-call.ts';

describe('a page in a browser', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let port: string;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create();
    port = new URL(daemon.url).port;
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const doors = (): { method: string; path: string; upgrade?: boolean }[] => [
    { method: 'GET', path: '/v1/health' },
    { method: 'GET', path: '/docs' },
    { method: 'GET', path: '/v1/sandboxes' },
    { method: 'OPTIONS', path: '/v1/sandboxes' },
    { method: 'POST', path: '/v1/sandboxes' },
    { method: 'GET', path: '/metrics' },
    { method: 'POST', path: '/mcp' },
    { method: 'GET', path: '/nowhere' },
    { method: 'GET', path: `/v1/sandboxes/${sandbox.id}/exec/stream`, upgrade: true },
    { method: 'GET', path: `/v1/sandboxes/${sandbox.id}/terminals/1/attach`, upgrade: true },
  ];

  test('that reaches the daemon under another name is refused at every door, also with a token', async () => {
    const names = ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example', '0.0.0.0', '10.0.0.1'];
    for (const name of names) {
      for (const door of doors()) {
        const headers = { host: `${name}:${port}` };
        const { status } = await rawCall(daemon.url, { ...door, token: daemon.token, headers });
        expect(status, `${name} ${door.path}`).toBe(403);
      }
    }
  });

  test('is served under names that config.json allows, and under no others', async () => {
    await using behind = await RunningDaemon.start({
      config: { allowed_hosts: ['box.example'] },
      image: false,
    });
    const ask = async (host: string): Promise<number> =>
      (await rawCall(behind.url, { method: 'GET', path: '/v1/health', headers: { host } })).status;
    expect(await ask('box.example')).toBe(200);
    expect(await ask('BOX.example:443')).toBe(200);
    expect(await ask('other.example')).toBe(403);
    expect(await ask('box.example.evil.example')).toBe(403);
  });

  test('of another origin is refused at every door, also with a token, and is never told that it may', async () => {
    const origins = [
      'http://evil.example',
      'https://127.0.0.1.evil.example',
      `http://127.0.0.1:${Number(port) === 1 ? 2 : 1}`,
      `http://localhost:${port}`,
      'null',
      'file://',
      'nonsense',
    ];
    for (const origin of origins) {
      for (const door of doors()) {
        const headers = { host: `127.0.0.1:${port}`, origin };
        const { status, headers: answered } = await rawCall(daemon.url, {
          ...door,
          token: daemon.token,
          headers,
        });
        expect(status, `${origin} ${door.path}`).toBe(403);
        expect(Object.keys(answered).filter((name) => name.startsWith('access-control'))).toEqual([]);
      }
    }
  });

  test('of the daemon itself, and programs, are let in', async () => {
    const own = { host: `127.0.0.1:${port}`, origin: `http://127.0.0.1:${port}` };
    for (const headers of [own, { host: `localhost:${port}` }]) {
      const answer = await rawCall(daemon.url, {
        method: 'GET',
        path: '/v1/sandboxes',
        token: daemon.token,
        headers,
      });
      expect(answer.status).toBe(200);
    }
    const socket = await rawCall(daemon.url, {
      method: 'GET',
      path: `/v1/sandboxes/${sandbox.id}/exec/stream`,
      token: daemon.token,
      headers: own,
      upgrade: true,
    });
    expect(socket.status).toBe(101);
  });
});
