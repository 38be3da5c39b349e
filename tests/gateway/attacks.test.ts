import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Internet, nameServer, server } from './internet.ts';

/** One server has both names; a sandbox may reach one of them. */
const zone = { 'good.example.com': server, 'other.example.com': server, 'api.example.com': server };
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));
const value = 'tok-7c1e52f09ab3d4';
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

let internet: Internet;
let daemon: RunningDaemon;
let directory: string;
let sandbox: Sandbox;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-attacks-'));
  internet = await Internet.open(zone);
  const file = join(directory, 'authority.pem');
  writeFileSync(file, internet.authority);
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['curl'],
    config: { gateway: { resolvers: [`${nameServer}:53`], authorities: [file] } },
  });
  await daemon.client.secrets.set('api', value, {
    use: {
      hosts: ['api.example.com'],
      methods: ['GET'],
      place: { kind: 'header', name: 'authorization', format: 'Bearer {}' },
    },
  });
  const allow = ['good.example.com', 'good.example.com:8081', 'api.example.com', 'secret:api'];
  sandbox = await daemon.client.sandboxes.create({ network: { allow } });
  await sandbox.exec(['sh', '-c', resolver]);
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

beforeEach(async () => void (await internet.hits()));

const curl = async (...args: string[]): Promise<string> => {
  const { stdout, stderr } = await sandbox.exec(['curl', '-sS', '-m', '10', ...args]);
  return `${stdout}${stderr}`;
};

/** Sends these bytes, and reads until the other side ends or is silent for a while. */
const raw = async (port: number, ...lines: string[]): Promise<string> => {
  const bytes = lines.join('\r\n').replaceAll('\r', '\\r').replaceAll('\n', '\\n');
  const script = `exec 3<>/dev/tcp/good.example.com/${port}; printf '${bytes}' >&3; while read -t 2 -r line <&3; do echo "$line"; done`;
  return (await sandbox.exec(['bash', '-c', script])).stdout;
};

/** What the servers understood, after one more request that is sure to have come last. */
const hits = async (): Promise<string[]> => {
  await curl('http://good.example.com/last');
  const all = await internet.hits();
  expect(all.at(-1)).toBe('good.example.com GET /last');
  return all.slice(0, -1);
};

const hidden = 'GET /hidden HTTP/1.1\r\nhost: other.example.com\r\n\r\n';

describe('a sandbox that may reach one name of a server cannot slip in a request to another', () => {
  test.each([
    ['as the chunks of a GET', ['-H', 'transfer-encoding: chunked']],
    ['as a body whose length is said to be for the connection', ['-H', 'connection: content-length']],
    ['as both at once', ['-H', 'transfer-encoding: chunked', '-H', 'connection: transfer-encoding']],
  ])('%s', async (_how, headers) => {
    for (const method of ['GET', 'DELETE', 'POST'])
      for (const url of ['http://good.example.com/shown', 'https://api.example.com/shown'])
        await curl('-X', method, ...headers, '--data-binary', hidden, url);
    const seen = await hits();
    expect(seen).toContain('good.example.com GET /shown');
    expect(seen).toContain('api.example.com GET /shown');
    expect(seen.filter((each) => each.includes('hidden') || each.includes('other'))).toEqual([]);
  });

  test('after an upgrade that the server does not take', async () => {
    const upgrade = [
      'GET /shown HTTP/1.1',
      'host: good.example.com',
      'connection: upgrade',
      'upgrade: anything',
      '',
      '',
    ];
    const said = await raw(8081, ...upgrade, hidden);
    expect(said).toContain('200 OK');
    expect(await hits()).toEqual(['good.example.com GET /shown']);
  });

  test('without a host, with two, or with one that only looks like it', async () => {
    for (const host of [
      'other.example.com',
      'good.example.com@other.example.com',
      'other.example.com#good.example.com',
    ])
      expect(await curl('-H', `host: ${host}`, 'http://good.example.com/')).toContain('instead');
    await raw(80, 'GET /two HTTP/1.1', 'host: good.example.com', 'host: other.example.com', '', '');
    await raw(80, 'GET /none HTTP/1.0', '', '');
    await raw(80, 'GET http://other.example.com/whole HTTP/1.1', 'host: good.example.com', '', '');
    await raw(80, 'CONNECT other.example.com:80 HTTP/1.1', 'host: good.example.com', '', '', hidden);
    expect(await hits()).toEqual([]);
    await curl('-H', 'connection: host', 'http://good.example.com/named');
    expect(await hits()).toEqual(['good.example.com GET /named']);
  });

  test('over UDP, as QUIC does, by address or by name', async () => {
    const tell = `for host in ${server} good.example.com other.example.com; do for port in 443 53; do echo told > /dev/udp/$host/$port; done; done`;
    await sandbox.exec(['bash', '-c', `${tell} 2>/dev/null; true`]);
    expect(await hits()).toEqual([]);
    expect((await internet.asked()).filter((name) => !name.endsWith('example.com'))).toEqual([]);
  });

  test('in HTTP/2, neither at once nor by an upgrade', async () => {
    await raw(80, 'PRI * HTTP/2.0', '', 'SM', '', '');
    const said = await raw(
      80,
      'GET /h2c HTTP/1.1',
      'host: good.example.com',
      'connection: upgrade, http2-settings',
      'upgrade: h2c',
      'http2-settings: AAMAAABkAAQAAP__',
      '',
      '',
    );
    expect(said).not.toContain('101');
    expect(await hits()).toEqual([]);
  });
});

test('whoever watches sees what is reached, and what is refused with the command that would allow it', async () => {
  const { name } = await sandbox.inspect();
  const watch = spawn(process.execPath, [cli, 'net', name, '--watch', '--home', daemon.home]);
  const lines = createInterface({ input: watch.stdout });
  const ended = once(watch, 'exit');
  let complaints = '';
  watch.stderr.on('data', (text: Buffer) => {
    complaints += text.toString();
  });
  await curl('http://good.example.com/', 'http://other.example.com/');
  const missing = [
    /allowed +good\.example\.com/,
    /refused +other\.example\.com.*coppice net .* --allow other\.example\.com/,
  ];
  for await (const line of lines) {
    const at = missing.findIndex((pattern) => pattern.test(line));
    if (at !== -1) missing.splice(at, 1);
    if (missing.length === 0) break;
  }
  watch.kill('SIGINT');
  await ended;
  expect(complaints).toBe('');
});

describe('a sandbox that may use a secret', () => {
  const url = 'https://api.example.com';
  test('cannot have it said back in pieces, by ranges', async () => {
    const said = await curl('-r', '30-33', '-H', 'if-range: "x"', `${url}/echo`);
    expect(JSON.parse(said)).toMatchObject({
      headers: { authorization: `Bearer ${'*'.repeat(value.length)}` },
    });
    expect(said).not.toContain('"range"');
    expect(said).not.toContain('"if-range"');
  });

  test('cannot make another method or path of a request by a header', async () => {
    const headers = [
      'x-http-method-override',
      'x-http-method',
      'x-method-override',
      'x-original-url',
      'x-rewrite-url',
    ];
    const said = await curl(...headers.flatMap((name) => ['-H', `${name}: DELETE`]), `${url}/echo`);
    expect(
      Object.keys((JSON.parse(said) as { headers: object }).headers).filter((name) => headers.includes(name)),
    ).toEqual([]);
  });

  test('does not find it in the name of a header of an answer', async () => {
    const said = await curl('-D', '-', `${url}/name`);
    expect(said).toContain('200 OK');
    expect(said).not.toContain(value);
  });

  test('cannot upgrade, tunnel or trace a connection that has it', async () => {
    await curl('-H', 'connection: upgrade', '-H', 'upgrade: websocket', `${url}/upgraded`);
    expect(await hits()).toEqual([]);
    expect(await curl('-X', 'CONNECT', '--request-target', 'other.example.com:443', `${url}/`)).not.toContain(
      value,
    );
    expect(await curl('-X', 'TRACE', `${url}/echo`)).not.toContain(value);
  });
});
