import { execFile } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gatewayPid } from './gateway-pid.ts';
import { Internet, nameServer, server } from './internet.ts';

const run = promisify(execFile);
const value = 'a-value-of-some-length';
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const firstKey = '11'.repeat(32);
const secondKey = Buffer.alloc(32, 7).toString('base64');

let directory: string;
let internet: Internet;
let daemon: RunningDaemon;
let sandbox: Sandbox;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-gateway-user-'));
  internet = await Internet.open({ 'api.example.com': server });
  const authority = join(directory, 'authority.pem');
  writeFileSync(authority, internet.authority);
  writeFileSync(join(directory, 'keys'), `${firstKey}\n`);
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['curl'],
    config: {
      gateway: {
        resolvers: [`${nameServer}:53`],
        authorities: [authority],
        key_command: ['/bin/sh', '-c', `cat ${join(directory, 'keys')}`],
      },
    },
  });
  await daemon.client.secrets.set('api', value, {
    use: { hosts: ['api.example.com'], place: { kind: 'header', name: 'x-token', format: '{}' } },
  });
  sandbox = await daemon.client.sandboxes.create({ network: { allow: ['api.example.com', 'secret:api'] } });
  await sandbox.exec(['sh', '-c', resolver]);
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** The server was sent the value: it comes back covered, as long as it was. */
const isUsed = async (): Promise<boolean> => {
  const { stdout } = await sandbox.exec(['curl', '-sS', '-m', '20', 'https://api.example.com/echo']);
  return stdout.includes(`"x-token":"${'*'.repeat(value.length)}"`);
};
const restartGateway = async (): Promise<void> => {
  const pid = gatewayPid(daemon.home);
  process.kill(pid, 'SIGKILL');
  await eventually('another gateway runs', () => {
    try {
      return gatewayPid(daemon.home) !== pid;
    } catch {
      return false;
    }
  });
};
const gatewayDirectory = (): string => join(daemon.home, 'gateway');
const statusOf = (name: string): string =>
  new RegExp(`^${name}:[\\t ]*(.*)$`, 'm').exec(
    readFileSync(`/proc/${gatewayPid(daemon.home)}/status`, 'utf8'),
  )![1]!;

test('the gateway runs as a user of its own, which is nobody else’s and has no right of root', async () => {
  const { uid, gid } = statSync(gatewayDirectory());
  expect(uid).toBeGreaterThan(0x1fefffff);
  expect(statusOf('Uid')).toBe([uid, uid, uid, uid].join('\t'));
  expect(statusOf('Gid')).toBe([gid, gid, gid, gid].join('\t'));
  expect(statusOf('Groups').trim()).toBe('');
  for (const set of ['CapEff', 'CapPrm', 'CapInh', 'CapAmb']) expect(statusOf(set)).toMatch(/^0+$/);
  expect(statusOf('NoNewPrivs')).toBe('1');
  expect(await isUsed()).toBe(true);
});

test('its user reads nothing of the home but what is its own, and puts nothing there', async () => {
  const { uid } = statSync(gatewayDirectory());
  const as = (...command: string[]) =>
    run('setpriv', [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--', ...command]);
  for (const name of ['token', 'coppice.db', 'run', 'log', 'images', 'pool', 'config.json', 'daemon.json'])
    await expect(as('cat', join(daemon.home, name)), name).rejects.toThrow();
  await expect(as('ls', daemon.home)).rejects.toThrow(/Permission denied/);
  await expect(as('touch', join(daemon.home, 'planted'))).rejects.toThrow(/Permission denied/);
  await expect(as('cat', '/etc/shadow')).rejects.toThrow(/Permission denied/);
});

test('a home whose gateway ran as root before goes on with all that it had', async () => {
  const { uid } = statSync(gatewayDirectory());
  await daemon.kill();
  const pid = gatewayPid(daemon.home);
  process.kill(pid, 'SIGKILL');
  await eventually('it is gone', () => !existsSync(`/proc/${pid}`));
  for (const name of readdirSync(gatewayDirectory())) lchownSync(join(gatewayDirectory(), name), 0, 0);
  chownSync(gatewayDirectory(), 0, 0);
  chownSync(daemon.home, 0, 0);
  chmodSync(daemon.home, 0o700);
  await daemon.restart();
  sandbox = daemon.client.sandboxes.at(sandbox.id);
  expect((await daemon.client.secrets.list()).map(({ name }) => name)).toEqual(['api']);
  await eventually('the secret is used', isUsed);
  expect(statSync(gatewayDirectory()).uid).toBe(uid);
  expect(statSync(daemon.home).mode & 0o777).toBe(0o710);
  const others = readdirSync(gatewayDirectory()).filter(
    (name) => statSync(join(gatewayDirectory(), name)).uid !== uid,
  );
  expect(others).toEqual([]);
});

test('the key of the store comes from a command, is in no file and no argument, and is rotated', async () => {
  const key = Buffer.from(firstKey, 'hex');
  for (const name of readdirSync(gatewayDirectory()).filter((each) => !each.endsWith('.sock'))) {
    const content = readFileSync(join(gatewayDirectory(), name));
    expect(content.includes(key) || content.includes(firstKey), name).toBe(false);
  }
  expect(existsSync(join(gatewayDirectory(), 'secrets.key'))).toBe(false);
  expect(readFileSync(`/proc/${gatewayPid(daemon.home)}/cmdline`, 'latin1')).not.toContain(firstKey);
  expect(readFileSync(`/proc/${gatewayPid(daemon.home)}/environ`, 'latin1')).not.toContain(firstKey);
  writeFileSync(join(directory, 'keys'), `${secondKey}\n${firstKey}\n`);
  await daemon.client.secrets.rekey();
  expect(await isUsed()).toBe(true);
  // The old one is needed no more.
  writeFileSync(join(directory, 'keys'), `${secondKey}\n`);
  await restartGateway();
  await eventually('the secret opens with the new key alone', isUsed);
});

test('a command that prints no key, or another one, says so and loses nothing', async () => {
  writeFileSync(join(directory, 'keys'), 'not a key\n');
  await expect(daemon.client.secrets.rekey()).rejects.toMatchObject({
    code: 'invalid_argument',
    message: expect.stringContaining('32 bytes in hex or base64'),
  });
  writeFileSync(join(directory, 'keys'), `${firstKey}\n`);
  await expect(daemon.client.secrets.rekey()).rejects.toMatchObject({
    code: 'corrupt',
    message: expect.not.stringContaining(firstKey),
  });
  expect(await isUsed()).toBe(true);
  rmSync(join(directory, 'keys'));
  await expect(daemon.client.secrets.rekey()).rejects.toMatchObject({ code: 'unavailable' });
  writeFileSync(join(directory, 'keys'), `${secondKey}\n`);
});
