import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createConnection, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const code = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'no error',
    (error: unknown) => (error instanceof CoppiceError ? error.code : String(error)),
  );

/** Sends back, in upper case and once the sender is done, what it was sent. Numbers instead of modules, which are not there. */
const echoServer = `
socket(my $server, 2, 1, 0) or die; setsockopt($server, 1, 2, pack("l", 1));
bind($server, pack("S n C4 x8", 2, 8080, 127, 0, 0, 1)) or die; listen($server, 16) or die;
while (accept(my $client, $server)) { local $/; my $said = <$client>; syswrite($client, uc $said); close $client }`;

/** A program of this machine with the libraries it needs. */
async function bring(sandbox: Sandbox, program: string): Promise<void> {
  const libraries = execFileSync('ldd', [program], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g);
  for (const path of [program, ...[...libraries].map((match) => match[1]!)])
    await sandbox.files.write(path, readFileSync(path), { mode: '755' });
}

async function say(port: number, message: string): Promise<string> {
  const socket = createConnection({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  socket.end(message);
  return text(socket).catch(() => 'refused');
}

/** Fails where somebody else does. */
async function listenFor(port: number): Promise<void> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  server.close();
  await once(server, 'close');
}

describe('port forwards', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create();
    await bring(sandbox, '/usr/bin/perl');
    await sandbox.jobs.start(['/usr/bin/perl', '-e', echoServer]);
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  test('are waited for: until something listens there, and no longer than asked for', async () => {
    const waited = sandbox.waitForPort(8181, { timeout_ms: 60_000 });
    const refused = sandbox.waitForPort(8182, { timeout_ms: 100 });
    expect(await code(refused)).toBe('timeout');
    await sandbox.jobs.start(['perl', '-e', echoServer.replace('8080', '8181')]);
    expect(await waited).toMatchObject({ port: 8181 });
    expect(await sandbox.waitForPort(8181, { timeout_ms: 0 })).toMatchObject({ port: 8181 });
    expect(await code(sandbox.waitForPort(0))).toBe('invalid_argument');
  });

  test('a port of the host reaches a server inside, though the sandbox has no network', async () => {
    const { host_port: port, url } = await sandbox.ports.forward(8080);
    expect(url).toBe(`http://127.0.0.1:${port}`);
    await eventually('it answers', async () => (await say(port, 'hello')) === 'HELLO');
    const long = 'word '.repeat(200_000);
    expect(await say(port, long)).toBe(long.toUpperCase());
    expect((await Promise.all(['a', 'b', 'c'].map((word) => say(port, word)))).join('')).toBe('ABC');
    await sandbox.ports.remove(8080);
    expect(await code(sandbox.ports.remove(8080))).toBe('not_found');
    expect(await sandbox.ports.list()).toEqual([]);
  });

  test('a connection to a port where nothing listens inside is broken off', async () => {
    const { host_port: port } = await sandbox.ports.forward(81);
    expect(['', 'refused']).toContain(await say(port, 'hello'));
    await sandbox.ports.remove(81);
  });

  test('a host port that is taken is refused, by us and by others; the same forward twice is one', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    const { port } = other.address() as { port: number };
    expect(await code(sandbox.ports.forward(90, { host_port: port }))).toBe('in_use');
    other.close();
    const first = await sandbox.ports.forward(91);
    expect(await sandbox.ports.forward(91)).toEqual(first);
    expect(await code(sandbox.ports.forward(92, { host_port: first.host_port }))).toBe('in_use');
    expect(await code(sandbox.ports.forward(93, { host_port: 80 }))).toBe('invalid_argument');
  });

  test('a forward that is asked for while its sandbox is destroyed is none', async () => {
    for (let round = 0; round < 4; round += 1) {
      const brief = await daemon.client.sandboxes.create();
      const asked = Array.from({ length: 40 }, async (_, index) => {
        await sleep(index);
        return brief.ports.forward(1000 + index).then(
          ({ host_port: taken }) => taken,
          (error: CoppiceError) => error.code,
        );
      });
      await Promise.all([brief.destroy(), ...asked]);
      for (const answer of await Promise.all(asked)) {
        if (typeof answer === 'string') expect(answer).toBe('not_found');
        // Nobody listens there any more.
        else await listenFor(answer);
      }
    }
  });

  test('a connection wakes a paused sandbox', async () => {
    const { host_port: port } = await sandbox.ports.forward(94);
    await sandbox.pause({ keep: 'disk' });
    await say(port, 'wake up');
    await eventually('it runs', async () => (await sandbox.inspect()).state === 'running');
  });

  test('take no more connections than config.json says, and one port no more than half of them', async () => {
    const config = { limits: { forward_connections: 20 } };
    await using bounded = await RunningDaemon.start({ config });
    await using served = await bounded.client.sandboxes.create();
    await bring(served, '/usr/bin/perl');
    await served.jobs.start(['/usr/bin/perl', '-e', echoServer]);
    const { host_port: port } = await served.ports.forward(8080);
    await eventually('it answers', async () => (await say(port, 'hello')) === 'HELLO');
    const open = new Set<Socket>();
    const held = Array.from({ length: 200 }, () => {
      const socket = createConnection({ port, host: '127.0.0.1' });
      socket.on('error', () => {});
      socket.on('close', () => open.delete(socket));
      open.add(socket);
      return socket;
    });
    try {
      await eventually('the surplus is closed', async () => open.size <= 10);
      expect(open.size).toBeGreaterThan(0);
      expect((await served.exec('echo still')).stdout).toBe('still\n');
    } finally {
      for (const socket of held) socket.destroy();
    }
    await eventually('it answers again', async () => (await say(port, 'again')) === 'AGAIN');
  });
});
