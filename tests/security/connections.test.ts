import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { Coppice } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { describe, expect, test } from 'vitest';
import { HalfRequest } from './half-request.ts';

const openMany = (place: string, count: number): Promise<HalfRequest[]> =>
  Promise.all(Array.from({ length: count }, () => HalfRequest.open(place)));

const closeAll = (connections: readonly HalfRequest[]): void => {
  for (const connection of connections) connection[Symbol.dispose]();
};

const descriptorsOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

/** So that a few hundred connections do to this process what twenty thousand do to another. */
const leaveDescriptors = (pid: number, spare: number): void => {
  execFileSync('prlimit', [`--pid=${pid}`, `--nofile=${descriptorsOf(pid) + spare}`]);
};

describe('connections', () => {
  test('of strangers who say nothing leave room for the socket of the home, for callers with a token and for work', async () => {
    await using daemon = await RunningDaemon.start({ config: { limits: { connections: 32 } } });
    leaveDescriptors(daemon.pid, 150);
    const silent = await openMany(daemon.url, 400);
    try {
      await using sandbox = await daemon.client.sandboxes.create();
      expect((await sandbox.exec('echo home')).stdout).toBe('home\n');
      using overPort = new Coppice({ url: daemon.url, token: daemon.token }, {});
      expect((await overPort.sandboxes.at(sandbox.id).exec('echo port')).stdout).toBe('port\n');
      await eventually(
        'the surplus is closed',
        async () => silent.filter((one) => !one.isClosed).length <= 32,
      );
    } finally {
      closeAll(silent);
    }
  });

  test('that are at work or were are not given up for strangers', async () => {
    await using daemon = await RunningDaemon.start({ config: { limits: { connections: 32 } } });
    await using sandbox = await daemon.client.sandboxes.create();
    using client = new Coppice({ url: daemon.url, token: daemon.token }, {});
    const inside = client.sandboxes.at(sandbox.id);
    const stream = await inside.execStream('read line; echo "got $line"');
    const long = inside.exec('touch /tmp/began; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done');
    await eventually('it runs', async () => (await sandbox.exec('test -e /tmp/began')).exit_code === 0);
    const silent = await openMany(daemon.url, 200);
    try {
      await eventually(
        'the surplus is closed',
        async () => silent.filter((one) => !one.isClosed).length <= 32,
      );
      await stream.write('this\n');
      let said = '';
      for await (const { data } of stream) said += data.toString();
      expect(said).toBe('got this\n');
      await sandbox.exec('touch /tmp/go');
      expect((await long).stdout).toBe('done\n');
    } finally {
      closeAll(silent);
    }
  });

  test('of one token are half of all at most, so that it cannot lock out others', async () => {
    await using daemon = await RunningDaemon.start({ config: { limits: { connections: 16 } } });
    await using sandbox = await daemon.client.sandboxes.create();
    const waiting = JSON.stringify({ command: 'sleep 1000' });
    const ask = async (): Promise<HalfRequest> =>
      (await HalfRequest.open(daemon.url))
        .head(`POST /v1/sandboxes/${sandbox.id}/exec HTTP/1.1`, {
          authorization: `Bearer ${sandbox.token}`,
          'content-type': 'application/json',
          'content-length': String(waiting.length),
        })
        .send(waiting);
    const held = await Promise.all(Array.from({ length: 8 }, ask));
    try {
      using over = await ask();
      expect(await over.status()).toBe(429);
      expect(over.received).toContain('limit_reached');
      using admin = new Coppice({ url: daemon.url, token: daemon.token }, {});
      expect((await admin.sandboxes.at(sandbox.id).exec('echo still')).stdout).toBe('still\n');
    } finally {
      closeAll(held);
    }
  });

  test('whose request does not come, or comes in part only, are closed at the port and at the socket', async () => {
    const limits = { request_timeout_s: 1 };
    await using daemon = await RunningDaemon.start({ image: false, config: { limits } });
    for (const place of [daemon.url, daemon.socket]) {
      using silent = await HalfRequest.open(place);
      using half = await HalfRequest.open(place);
      half.send('GET /v1/health HTTP/1.1\r\nHost: loc');
      using slow = await HalfRequest.open(place);
      slow.send('GET /v1/health HTTP/1.1\r\nHost: localhost\r\n');
      const dripping = setInterval(() => slow.send('x-more: y\r\n'), 100);
      await Promise.all([silent.closed(), half.closed(), slow.closed()]);
      clearInterval(dripping);
    }
    expect((await daemon.client.health()).status).toBe('ok');
  });

  test('that never send their first message over a WebSocket are closed', async () => {
    const limits = { request_timeout_s: 1 };
    await using daemon = await RunningDaemon.start({ config: { limits } });
    await using sandbox = await daemon.client.sandboxes.create();
    using silent = await HalfRequest.open(daemon.url);
    silent.head(`GET /v1/sandboxes/${sandbox.id}/exec/stream HTTP/1.1`, {
      authorization: `Bearer ${sandbox.token}`,
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': Buffer.from('sixteen bytes ok').toString('base64'),
    });
    expect(await silent.status()).toBe(101);
    await silent.closed();
  });

  test('for a WebSocket are refused without a token at every path, also where there is none', async () => {
    await using daemon = await RunningDaemon.start({ image: false });
    for (const path of ['/v1/sandboxes', '/v1/sandboxes/some/exec/stream', '/mcp', '/metrics']) {
      using request = await HalfRequest.open(daemon.url);
      request.head(`GET ${path} HTTP/1.1`, {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': Buffer.from('sixteen bytes ok').toString('base64'),
      });
      expect(await request.status(), path).toBe(401);
      await request.closed();
    }
  });
});
