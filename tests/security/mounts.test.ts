import { execFile, execFileSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { mountsSchema, parseMount } from '@coppice/protocol';
import { DriverWorkbench, mountAt, runIn, shellIn, tinyImage } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeContainerDriver } from '../../packages/runtime/test/container/make-container-driver.ts';
import { makeGvisorDriver } from '../../packages/runtime/test/gvisor/make-gvisor-driver.ts';
import { HostCanary } from './host-canary.ts';
import { makeWithCriu, whyNoCriu } from './with-criu.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const noRunsc = hasRunsc ? undefined : 'this machine has no runsc';
const probeSource = fileURLToPath(new URL('./set-id-probe.c', import.meta.url));

describe.each([
  { driver: 'container', make: makeContainerDriver, missing: undefined },
  { driver: 'gvisor', make: makeGvisorDriver, missing: noRunsc },
])('directories of the host in the driver $driver', ({ make, missing }) => {
  let bench: DriverWorkbench;
  let canary: HostCanary;
  let scratch: string;
  let probe: string;
  beforeAll(async () => {
    scratch = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-mounts-')));
    probe = join(scratch, 'probe');
    await promisify(execFile)('cc', ['-static', '-O1', '-o', probe, probeSource]);
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));
  beforeEach(async ({ skip }) => {
    if (missing !== undefined) skip(missing);
    canary = new HostCanary();
    bench = await DriverWorkbench.open(await tinyImage(), make);
  });
  afterEach(async () => {
    await bench?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  const given = (name: string): string => {
    const directory = join(bench.home, name);
    mkdirSync(directory);
    return directory;
  };

  test('get no set-id bits and no strangers, each by its own owner', async () => {
    const [root, developer] = [given('of-root'), given('of-developer')];
    chownSync(developer, 1000, 1001);
    const spec = bench.spec({ mounts: [mountAt(root, '/srv/root'), mountAt(developer, '/srv/developer')] });
    mkdirSync(join(spec.diskDir, 'upper/root'), { recursive: true });
    execFileSync('cp', [probe, join(spec.diskDir, 'upper/root/probe')]);
    const { guest } = await bench.driver.start(spec);
    for (const at of ['/srv/root', '/srv/developer']) {
      await runIn(guest, ['/root/probe', at]);
      await shellIn(
        guest,
        `cd ${at}; cp /root/probe tool; chmod 6755 tool; setcap cap_setuid+ep tool; touch made`,
      );
    }
    expect(statSync(join(root, 'made'))).toMatchObject({ uid: 0, gid: 0 });
    expect(statSync(join(developer, 'made'))).toMatchObject({ uid: 1000, gid: 1001 });
    for (const directory of [root, developer]) {
      const found = ['find', [directory, '!', '-type', 'd', '-perm', '/6000']] as const;
      expect(execFileSync(...found, { encoding: 'utf8' })).toBe('');
      expect(
        execFileSync('getfattr', ['-R', '-m', 'security.capability', directory], { encoding: 'utf8' }),
      ).toBe('');
    }
  });

  test.each(['the image', 'its own disk'])(
    'do not go through a link of %s, wherever that leads',
    async (whose) => {
      const imageDir = join(bench.home, 'image');
      execFileSync('cp', ['--archive', '--reflink=auto', '--', await tinyImage(), imageDir]);
      const spec = bench.spec({
        image: { directory: bench.home, layers: ['image'] },
        mounts: [mountAt(given('given'), '/opt/deep/data')],
      });
      const root = whose === 'the image' ? imageDir : join(spec.diskDir, 'upper');
      rmSync(join(root, 'opt'), { recursive: true, force: true });
      for (const target of [canary.directory, '/etc', '/nowhere', '../../../..', '/proc/1/root']) {
        symlinkSync(target, join(root, 'opt'));
        await expect(bench.driver.start(spec), target).rejects.toMatchObject({
          code: 'conflict',
          message: expect.stringContaining('/opt/deep/data'),
          hint: expect.stringContaining('through a link'),
        });
        expect(bench.remains(spec.id)).toEqual([]);
        rmSync(join(root, 'opt'));
      }
      expect(canary.damage()).toEqual([]);
      const { guest } = await bench.driver.start(spec);
      await shellIn(guest, 'echo x > /opt/deep/data/made');
      expect(readdirSync(join(bench.home, 'given'))).toEqual(['made']);
    },
  );

  test('lead nowhere when the sandbox put a link in their place while it ran', async () => {
    const spec = bench.spec({ mounts: [mountAt(given('given'), '/opt/deep/data')] });
    const first = await bench.driver.start(spec);
    // A mount cannot be renamed, but what is above it can.
    await shellIn(first.guest, `mv /opt/deep /opt/elsewhere; ln -s ${canary.directory} /opt/deep`);
    await first.stop(0);
    await expect(bench.driver.start(spec)).rejects.toMatchObject({ code: 'conflict' });
    expect(canary.damage()).toEqual([]);
    expect(bench.remains(spec.id)).toEqual([]);
  });

  test('are opened without following a link on the host, and only where it is the one that was given', async () => {
    const directory = given('given');
    const spec = bench.spec({ mounts: [mountAt(given('other'), '/a'), mountAt(directory, '/b')] });
    rmSync(directory, { recursive: true });
    symlinkSync(canary.directory, directory);
    await expect(bench.driver.start(spec)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining(directory),
    });
    rmSync(directory);
    mkdirSync(directory);
    const bound = { ...spec, mounts: spec.mounts!.map((mount) => ({ ...mount, identity: '1:1:1' })) };
    await expect(bench.driver.start(bound)).rejects.toMatchObject({ code: 'conflict' });
    expect(canary.damage()).toEqual([]);
  });

  test('are refused by the driver itself at a path that belongs to the sandbox', async () => {
    const directory = given('given');
    for (const at of [
      '/',
      '/etc',
      '/proc',
      '/proc/1',
      '/run/x',
      '/tmp',
      '/lib/x',
      'data',
      '/a/../proc',
      '/a//b',
      '/a\nb',
    ])
      await expect(bench.start({ mounts: [mountAt(directory, at)] }), at).rejects.toMatchObject({
        code: 'invalid_argument',
      });
  });
});

describe.each([
  { driver: 'container', make: makeWithCriu, missing: whyNoCriu },
  { driver: 'gvisor', make: makeGvisorDriver, missing: noRunsc },
])('memory of a sandbox with directories of the host in the driver $driver', ({ make, missing }) => {
  test('goes on with them as they were, read-only too, and a fork of it with none of them', async ({
    skip,
  }) => {
    if (missing !== undefined) skip(missing);
    await using bench = await DriverWorkbench.open(await tinyImage(), make);
    const [open, sealed] = ['open', 'sealed'].map((name) => {
      mkdirSync(join(bench.home, name));
      return join(bench.home, name);
    }) as [string, string];
    writeFileSync(join(sealed, 'from-host'), 'sealed');
    const mounts = [mountAt(open, '/srv/open'), mountAt(sealed, '/data', true)];
    const first = bench.spec({ mounts });
    const source = await bench.driver.start(first);
    const loop =
      'n=0; while :; do n=$((n + 1)); echo $n > /srv/open/counted; echo x > /data/x; sleep 0.05; done';
    await source.guest.startJob({ argv: ['/bin/sh', '-c', loop] });
    const memoryDir = join(bench.home, 'memory');
    const [second, fork] = [bench.spec({ mounts }), bench.spec()];
    await source.checkpoint(memoryDir, async () => {
      for (const { diskDir } of [second, fork])
        execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), diskDir]);
    });
    await source.stop(0);
    const again = await bench.driver.restore(second, memoryDir);
    const { stdout } = await shellIn(
      again.guest,
      'cat /data/from-host; echo x > /data/x || echo refused; echo y > /srv/open/made',
    );
    expect(stdout).toBe('sealedrefused\n');
    expect(readdirSync(sealed)).toEqual(['from-host']);
    expect(readdirSync(open).sort()).toEqual(['counted', 'made']);
    await again.stop(0);
    rmSync(join(open, 'counted'));
    const alone = await bench.driver.restore(fork, memoryDir);
    expect(
      (await shellIn(alone.guest, 'ls /data; echo x > /srv/open/own; cat /srv/open/own')).stdout,
    ).toMatch(/x\n$/);
    expect(readdirSync(open)).toEqual(['made']);
  });

  test('gets no directory that it did not have where the processes could not see it', async ({ skip }) => {
    if (missing !== undefined) skip(missing);
    await using bench = await DriverWorkbench.open(await tinyImage(), make);
    const directory = join(bench.home, 'given');
    mkdirSync(directory);
    const first = bench.spec({ mounts: [mountAt(directory, '/data/one')] });
    const source = await bench.driver.start(first);
    const memoryDir = join(bench.home, 'memory');
    const second = bench.spec({ mounts: [mountAt(directory, '/data')] });
    await source.checkpoint(memoryDir, async () => {
      execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
    });
    await expect(bench.driver.restore(second, memoryDir)).rejects.toMatchObject({ code: 'unsupported' });
    expect(bench.remains(second.id)).toEqual([]);
  });
});

test('memory of a stranger cannot name a place that belongs to the sandbox', async ({ skip }) => {
  if (noRunsc !== undefined) skip(noRunsc);
  await using bench = await DriverWorkbench.open(await tinyImage(), makeGvisorDriver);
  const first = bench.spec();
  const source = await bench.driver.start(first);
  const memoryDir = join(bench.home, 'memory');
  const second = bench.spec();
  await source.checkpoint(memoryDir, async () => {
    execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
  });
  for (const places of [
    ['/proc'],
    ['/a/../../etc'],
    ['/etc'],
    Array.from({ length: 9 }, (_, n) => `/d${n}`),
    'no list',
    [7],
  ]) {
    writeFileSync(join(memoryDir, 'coppice-mounts.json'), JSON.stringify(places));
    await expect(bench.driver.restore(second, memoryDir)).rejects.toMatchObject({ code: 'invalid_argument' });
  }
});

test.each([
  ['./a:/b', { host_path: './a', guest_path: '/b', read_only: false }],
  ['/x:y:/b:ro', { host_path: '/x:y', guest_path: '/b', read_only: true }],
  ['/x:/b:rw', { host_path: '/x', guest_path: '/b', read_only: false }],
])('%s is read as a mount', (text, mount) => expect(parseMount(text)).toEqual(mount));

test.each(['', '/x', '/x:', ':/b', '/x:b', '/x:/b:no', '/x:/b:ro:ro'])('%j is no mount', (text) =>
  expect(() => parseMount(text)).toThrow('HOST:GUEST'),
);

test('two mounts are neither at one path nor one inside the other, and there are eight at most', () => {
  const at = (...paths: string[]) =>
    mountsSchema.safeParse(paths.map((path) => ({ host_path: '/srv', guest_path: path }))).success;
  expect(at('/a', '/ab', '/b/c')).toBe(true);
  for (const paths of [
    ['/a', '/a'],
    ['/a', '/a/b'],
    ['/a/b', '/a'],
    Array.from({ length: 9 }, (_, n) => `/d${n}`),
  ])
    expect(at(...paths), paths.join()).toBe(false);
});
