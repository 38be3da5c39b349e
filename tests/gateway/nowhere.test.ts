import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { searchHome } from '../agents/memory-of.ts';
import { collect, streamOf } from '../e2e/transfer/export-bytes.ts';
import { gatewayPid } from './gateway-pid.ts';
import { Internet, nameServer, server } from './internet.ts';

const run = promisify(execFile);
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));
/** Put together as it runs, so that no source and no cache of compiled code holds it. */
const value = ['tok', (0x5e3f9a1c7b2d).toString(36), (0x7c1d5b9e3f2a).toString(36), 'end'].join('-');
const shapes = [value, Buffer.from(value).toString('hex'), Buffer.from(`Bearer ${value}`).toString('base64')];
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

let internet: Internet;
let daemon: RunningDaemon;
let directory: string;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-nowhere-'));
  internet = await Internet.open({ 'api.example.com': server });
  writeFileSync(join(directory, 'authority.pem'), internet.authority);
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['curl'],
    config: {
      gateway: { resolvers: [`${nameServer}:53`], authorities: [join(directory, 'authority.pem')] },
    },
  });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** As a person does it: from standard input. */
async function setSecret(): Promise<void> {
  const args = [
    'secret',
    'set',
    'api',
    '--host',
    'api.example.com',
    '--path',
    '/echo',
    '--header',
    'authorization: Bearer {}',
  ];
  const child = spawn(process.execPath, [cli, ...args, '--home', daemon.home], {
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  child.stdin.end(value);
  expect((await once(child, 'exit'))[0]).toBe(0);
}

/** Whether what a program prints, or a file, holds one of the texts. */
async function holds(stream: AsyncIterable<Buffer>, texts: readonly string[]): Promise<boolean> {
  let tail = Buffer.alloc(0);
  for await (const chunk of stream) {
    const bytes = Buffer.concat([tail, chunk]);
    if (texts.some((text) => bytes.includes(text))) return true;
    tail = bytes.subarray(-200);
  }
  return false;
}

/** Files below a directory that hold one. The image of the pool is among them, so that what was deleted is searched too. */
async function filesWith(at: string, texts: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const entry of readdirSync(at, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile()) continue;
    // Most of the image is holes, which tar leaves out.
    const image = entry.name === 'pool.img' ? spawn('tar', ['--sparse', '-cf', '-', path]) : undefined;
    image?.stderr.resume();
    if (await holds(image?.stdout ?? createReadStream(path, { highWaterMark: 1 << 20 }), texts))
      found.push(path);
  }
  return found;
}

test('the value of a secret in use is in no memory but the gateway’s, on no disk, in no snapshot, export, log, event or error', async () => {
  await setSecret();
  // The daemon hands a value on when it is set; from its next start on it has never seen it.
  await daemon.stop();
  await daemon.restart();
  const sandboxes: Sandbox[] = [];
  for (const driver of ['container', 'gvisor'] as const) {
    const sandbox = await daemon.client.sandboxes.create({
      driver,
      network: { allow: ['api.example.com', 'secret:api'] },
    });
    sandboxes.push(sandbox);
    await sandbox.exec(['sh', '-c', resolver]);
    // In use while everything is searched, and said back by the server each time.
    await sandbox.jobs.start([
      'sh',
      '-c',
      'while :; do curl -sS https://api.example.com/echo >> /tmp/said; sleep 0.2; done',
    ]);
    const said = await sandbox.exec([
      'sh',
      '-c',
      'until grep -q Bearer /tmp/said; do sleep 0.1; done; cat /tmp/said',
    ]);
    expect(said.stdout).toMatch(/Bearer \*+/);
    const errors = await sandbox.exec([
      'curl',
      '-sS',
      '--path-as-is',
      'https://api.example.com/echo/../x',
      '-H',
      'host: other',
      'https://api.example.com/echo',
    ]);
    expect(`${errors.stdout}${errors.stderr}`).toContain('Coppice: ');
    expect(`${errors.stdout}${errors.stderr}`).not.toContain(value);
  }
  const gateway = gatewayPid(daemon.home);
  const searched = searchHome(daemon.home, shapes);
  // The search does find it: where it is used it is.
  expect(searched.get(gateway)?.found).toContain(value);
  const commands = [...searched.values()].map(({ command }) => command).join('\n');
  for (const known of [
    'daemon/src/main.ts',
    'coppice-launch',
    'coppice-pool',
    'coppice-relay',
    'runsc-sandbox',
    'coppice/agent',
  ])
    expect(commands).toContain(known);
  expect(searched.get(daemon.pid)).toBeDefined();
  const holders = [...searched].filter(([pid, { found }]) => pid !== gateway && found.length > 0);
  expect(holders.map(([, { command, found }]) => ({ command, found }))).toEqual([]);

  const events = JSON.stringify(await daemon.client.events.list({ limit: 1000 }));
  expect(events).toContain('sandbox.');
  for (const shape of shapes) expect(events).not.toContain(shape);
  for (const sandbox of sandboxes) {
    const snapshot = await sandbox.snapshot();
    const exported = await collect(daemon.client.snapshots.export(snapshot.id));
    expect(exported.includes(value)).toBe(false);
    // Its parts are packed, so what comes out of it is searched below.
    await daemon.client.snapshots.import(streamOf(exported));
  }
  const refused = daemon.client.secrets.set('api', value, {
    use: { hosts: ['*'], place: { kind: 'query', name: 'k' } },
  });
  await expect(refused).rejects.toThrow(
    expect.not.objectContaining({ message: expect.stringContaining(value) }),
  );
  await run('sync', []);
  // The search finds what is there: in the files of a disk, and in the image of the pool where there is one.
  const known = (await filesWith(daemon.home, ['nameserver 192.0.2.53'])).join('\n');
  expect(known).toContain('resolv.conf');
  if (existsSync(join(daemon.home, 'pool.img'))) expect(known).toContain('pool.img');
  expect(await filesWith(daemon.home, shapes)).toEqual([]);
});
