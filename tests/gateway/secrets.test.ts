import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatewayPid } from './gateway-pid.ts';
import { Internet, nameServer, server } from './internet.ts';

const zone = { 'api.example.com': server, 'other.example.com': server, 'plain.example.com': server };
const value = 'tok-7c1e52f09ab3-"quoted"';
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));

let internet: Internet;
let daemon: RunningDaemon;
let directory: string;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-authority-'));
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
      methods: ['GET', 'HEAD'],
      paths: ['/echo', '/api/mine/*', '/gzip', '/base64/*', '/zstd', '/head', '/split', '/redirect'],
      place: { kind: 'header', name: 'authorization', format: 'Bearer {}' },
    },
  });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const allow = ['api.example.com', 'other.example.com', 'plain.example.com', 'secret:api'];
const open = async (driver: 'container' | 'gvisor' = 'container', more: string[] = []): Promise<Sandbox> => {
  const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: [...allow, ...more] } });
  await sandbox.exec(['sh', '-c', resolver]);
  return sandbox;
};
const curl = async (sandbox: Sandbox, ...args: string[]): Promise<string> => {
  const { stdout, stderr } = await sandbox.exec(['curl', '-sS', '-m', '20', '--path-as-is', ...args]);
  return `${stdout}${stderr}`;
};
interface Echo {
  readonly url: string;
  readonly headers: Record<string, string>;
}
const covered = `Bearer ${'*'.repeat(value.length)}`;

/** What the server was really sent: how long the header was, as the value itself never comes back. */
const authorization = (said: string): string | undefined => (JSON.parse(said) as Echo).headers.authorization;

describe.each(['container', 'gvisor'] as const)('a sandbox of %s that may use a secret', (driver) => {
  test('has it put into its requests, by a gateway that its programs trust, and never sees it', async () => {
    const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow } });
    const before = await sandbox.snapshot();
    await sandbox.exec(['sh', '-c', resolver]);
    const said = await curl(
      sandbox,
      '-H',
      'authorization: Bearer placeholder',
      'https://api.example.com/echo',
    );
    // JSON escapes the quotes of the value, and that form is covered too.
    expect(authorization(said)).toMatch(/^Bearer \*+$/);
    const { stdout } = await sandbox.exec([
      'sh',
      '-c',
      'env; cat /run/coppice/*.pem /run/coppice/apt.conf; ls /run/coppice',
    ]);
    expect(stdout).toContain('authorities.jks');
    expect(stdout).toContain('Acquire::https::CaInfo "/run/coppice/ca-certificates.pem";');
    expect(stdout).toContain('NODE_EXTRA_CA_CERTS=/run/coppice/authority.pem');
    expect(stdout).toContain('BEGIN CERTIFICATE');
    expect(stdout).not.toContain('PRIVATE KEY');
    expect(stdout).not.toContain('tok-7c1e');
    // What it trusts is in memory, and on no disk.
    const { changes } = await daemon.client.diff(before.id, sandbox.id);
    expect(changes.map(({ path }) => path)).toContain('/etc/resolv.conf');
    expect(changes.map(({ path }) => path).filter((path) => path.startsWith('/run'))).toEqual([]);
    await sandbox.destroy();
  });
});

describe('a secret', () => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await open();
  });

  test('is put in at its hosts, methods and paths alone', async () => {
    const own = (path: string, ...args: string[]) =>
      curl(sandbox, ...args, '-H', 'authorization: placeholder', `https://api.example.com${path}`);
    expect(authorization(await own('/api/mine/x'))).toMatch(/^Bearer \*+$/);
    expect(authorization(await own('/api/other'))).toBe('placeholder');
    expect(authorization(await own('/echo', '-X', 'POST', '-d', ''))).toBe('placeholder');
    // Another host is not even opened: its own certificate is what the program sees.
    const other = await curl(
      sandbox,
      '-k',
      '-H',
      'authorization: placeholder',
      'https://other.example.com/echo',
    );
    expect(authorization(other)).toBe('placeholder');
    expect(await curl(sandbox, 'https://other.example.com/echo')).toMatch(/certificate/);
    expect(await curl(sandbox, 'http://api.example.com/echo')).not.toContain('*');
  });

  test.each([
    '/api/mine/../other',
    '/api/mine/%2e%2e/other',
    '/api/mine/..%2fother',
    '/api/mine/%252e%252e/other',
    '/api/mine//x',
    '/api/mine/..;/other',
    '/api/mine/..\\other',
  ])('is not put into a path that can be read in two ways: %s', async (path) => {
    expect(await curl(sandbox, `https://api.example.com${path}`)).toContain('more than one way');
  });

  test('is covered where the server says it back: in headers, pieces and compressed, and unknown codings are refused', async () => {
    const head = await curl(sandbox, '-D', '-', 'https://api.example.com/head');
    expect(head).toContain(`x-echo: ${covered}`);
    for (const path of ['/split', '/gzip'])
      expect(authorization(await curl(sandbox, `https://api.example.com${path}`)), path).toMatch(
        /^Bearer \*+$/,
      );
    for (const before of [0, 1, 2]) {
      const said = await curl(sandbox, `https://api.example.com/base64/${before}`);
      expect(said).toMatch(/[A-Za-z0-9]\*{20,}[A-Za-z0-9]/);
      expect(Buffer.from(said.replaceAll('*', 'A'), 'base64').toString('latin1')).not.toContain('c1e52f09');
    }
    expect(await curl(sandbox, 'https://api.example.com/zstd')).toContain('no secret can be found');
  });

  test('does not go along where the server sends the client elsewhere', async () => {
    const args = ['-k', '-L', '--location-trusted', '-H', 'authorization: placeholder'];
    const said = await curl(sandbox, ...args, 'https://api.example.com/redirect');
    expect(JSON.parse(said)).toMatchObject({
      headers: { host: 'other.example.com', authorization: 'placeholder' },
    });
  });

  test('does not go along in a request that is hidden in another', async () => {
    const hidden = 'GET /echo HTTP/1.1\\r\\nhost: api.example.com\\r\\n\\r\\n';
    const said = await curl(
      sandbox,
      ...['-H', 'transfer-encoding: chunked', '-H', 'content-length: 4', '--data-binary', hidden],
      'https://api.example.com/api/other',
    );
    expect(said).not.toMatch(/Bearer \*/);
  });

  test('is not used for another host on the same connection', async () => {
    const said = await curl(sandbox, '-H', 'host: other.example.com', 'https://api.example.com/echo');
    expect(said).toContain('asked for other.example.com instead');
  });

  test('goes when the policy no longer has it, and a fork has what its own policy says', async () => {
    const one = await open();
    const [fork] = (await one.fork()).sandboxes;
    await fork!.setNetwork({ allow: ['api.example.com'] });
    const plain = ['-k', '-H', 'authorization: placeholder', 'https://api.example.com/echo'];
    expect(authorization(await curl(fork!, ...plain))).toBe('placeholder');
    expect(authorization(await curl(one, ...plain))).toMatch(/^Bearer \*/);
    await one.setNetwork({ allow: ['api.example.com'] });
    expect(authorization(await curl(one, ...plain))).toBe('placeholder');
    await one.setNetwork({ allow: ['api.example.com', 'secret:api'] });
    expect(authorization(await curl(one, ...plain))).toMatch(/^Bearer \*/);
  });

  test('is rotated without touching a sandbox, and can be put into basic authentication and into the query', async () => {
    const one = await open('container', ['secret:basic', 'secret:query']);
    const use = (place: object) => ({ use: { hosts: ['plain.example.com'], place: place as never } });
    await daemon.client.secrets.set('basic', 'first-value', use({ kind: 'basic', user: 'bot' }));
    await daemon.client.secrets.set('query', 'second value', use({ kind: 'query', name: 'key' }));
    const said = async (): Promise<Echo> =>
      JSON.parse(await curl(one, 'https://plain.example.com/echo?key=placeholder&a=1')) as Echo;
    const basic = Buffer.from('bot:first-value').toString('base64');
    const first = await said();
    expect(first.headers.authorization).toBe(`Basic ${'*'.repeat(basic.length)}`);
    expect(first.url).toBe(`/echo?a=1&key=${'*'.repeat('second%20value'.length)}`);
    await daemon.client.secrets.set('basic', 'a-value-that-is-longer');
    expect((await said()).headers.authorization!.length).toBeGreaterThan(first.headers.authorization!.length);
  });

  test('is in no file of the home, in no list and in no argument of a process', async () => {
    const below = (at: string): string[] =>
      readdirSync(at, { withFileTypes: true, recursive: true })
        .filter((entry) => entry.isFile() && !entry.parentPath.includes('/pool') && entry.name !== 'pool.img')
        .map((entry) => join(entry.parentPath, entry.name));
    for (const place of ['gateway', 'log'])
      for (const file of below(join(daemon.home, place)))
        expect(readFileSync(file).includes('tok-7c1e'), file).toBe(false);
    const listed = await promisify(execFile)(process.execPath, [
      cli,
      'secret',
      'ls',
      '--json',
      '--home',
      daemon.home,
    ]);
    expect(listed.stdout).toContain('"api.example.com"');
    expect(listed.stdout).not.toContain('tok-7c1e');
    const arguments_ = readFileSync(`/proc/${gatewayPid(daemon.home)}/cmdline`, 'latin1');
    expect(arguments_).not.toContain('tok-7c1e');
  });

  test('that is too short to be found in answers, or whose host is everything, is refused', async () => {
    const place = { kind: 'query', name: 'k' } as const;
    const set = (text: string, hosts: string[]) =>
      daemon.client.secrets.set('bad', text, { use: { hosts, place } });
    await expect(set('short', ['api.example.com'])).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(set('long-enough', ['*'])).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(set('long-enough', ['api.example.com:80'])).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    const create = daemon.client.sandboxes.create({ network: { allow: ['secret:api'] } });
    await expect(create).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
