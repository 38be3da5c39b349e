import { execFile, execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { MachineSpec } from '@coppice/runtime';
import {
  DriverWorkbench,
  imageRootOf,
  mountAt,
  RunningDaemon,
  shellIn,
  skipFor,
  tinyImage,
} from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeContainerDriver } from '../../packages/runtime/test/container/make-container-driver.ts';
import { makeGvisorDriver } from '../../packages/runtime/test/gvisor/make-gvisor-driver.ts';
import { collect, fileOf, partsOf, streamOf } from '../e2e/transfer/export-bytes.ts';
import { HostCanary } from './host-canary.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const withoutRunsc = hasRunsc ? undefined : 'this machine has no runsc';

const poolProbe = fileURLToPath(new URL('./pool-probe.c', import.meta.url));

// Not below /tmp, which a link takes the place of here.
const canaryParent = '/var/tmp';

describe('a sandbox that makes a link of its /tmp', skipFor(withoutRunsc), () => {
  let daemon: RunningDaemon;
  let canary: HostCanary;
  beforeAll(async () => {
    canary = new HostCanary(canaryParent);
    daemon = await RunningDaemon.start();
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  test('leads what grows from it in gVisor nowhere but to its own files', async () => {
    await using source = await daemon.client.sandboxes.create({ driver: 'container' });
    const target = canary.directory;
    const { exit_code: code } = await source.exec(
      `mkdir -p ${target} && rm -r /tmp && ln -s ${target} /tmp && echo mine > /tmp/own`,
    );
    expect(code).toBe(0);
    const snapshot = await source.snapshot();
    await using grown = await daemon.client.sandboxes.create({ from: snapshot.id, driver: 'gvisor' });
    const { stdout } = await grown.exec('ls /tmp; cat /tmp/secret; echo x > /tmp/planted; cat /tmp/own');
    expect(stdout).not.toContain(canary.secret);
    expect(canary.damage()).toEqual([]);
    // What the container saw there, and the same after a restart.
    expect(stdout).toBe('own\nmine\n');
    await grown.stop();
    await grown.start();
    expect((await grown.exec('cat /tmp/planted; readlink /tmp')).stdout).toBe(`x\n${target}\n`);
    expect(canary.damage()).toEqual([]);
  });

  test('leads a fork of it from a stranger’s file nowhere else', async () => {
    const source = await daemon.client.sandboxes.create({ driver: 'gvisor' });
    const taken = await source.snapshot();
    const file = await collect(daemon.client.snapshots.export(taken.id, { image: false }));
    await source.destroy();
    const [described] = partsOf(file);
    const bytes = Buffer.concat([
      Buffer.from('CPTREE1\nR'),
      Buffer.alloc(27),
      Buffer.from('L\x03tmp'),
      Buffer.alloc(27),
      Buffer.from([canary.directory.length, 0]),
      Buffer.from(`${canary.directory}E`),
    ]);
    const hostile = await fileOf(JSON.parse(described!.bytes.toString()), [{ name: 'disk', bytes }]);
    const imported = await daemon.client.snapshots.import(streamOf(hostile));
    const { sandboxes } = await daemon.client.snapshots.fork(imported.id);
    await using fork = sandboxes[0]!;
    const { stdout } = await fork.exec('cat /tmp/secret; echo x > /tmp/planted; ls /tmp');
    expect(stdout).toBe('planted\n');
    expect(canary.damage()).toEqual([]);
  });
});

const drivers = [
  { name: 'container', make: makeContainerDriver, missing: false },
  { name: 'gvisor', make: makeGvisorDriver, missing: !hasRunsc },
] as const;

/** Every path of a root at which one of the drivers mounts something; /tmp only gVisor. */
const places = {
  'the places at its top': ['proc', 'sys', 'dev', 'run', 'workspace'],
  '/tmp': ['tmp'],
  'the places further down': ['dev/shm', 'dev/pts', 'run/coppice', 'run/coppice-agent'],
};

type InTheWay = 'links to the host' | 'dangling links' | 'files';

const cases = Object.entries(places).flatMap(([what, paths]) =>
  (['image', 'disk'] as const).flatMap((layer) =>
    (['links to the host', 'dangling links', 'files'] as const).map((kind) => ({ what, paths, layer, kind })),
  ),
);

describe.each(drivers)('a root of the driver $name', ({ make, missing }) => {
  let bench: DriverWorkbench;
  let canary: HostCanary;
  let workspaceDir: string;
  beforeEach(async ({ skip }) => {
    if (missing) skip('this machine has no runsc');
    canary = new HostCanary(canaryParent);
    bench = await DriverWorkbench.open(await tinyImage(), make);
    workspaceDir = join(bench.home, 'given');
    mkdirSync(workspaceDir);
  });
  afterEach(async () => {
    await bench?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  const put = (root: string, path: string, kind: InTheWay): void => {
    const at = join(root, path);
    rmSync(at, { recursive: true, force: true });
    mkdirSync(join(at, '..'), { recursive: true });
    if (kind === 'files') writeFileSync(at, 'in the way');
    else symlinkSync(kind === 'dangling links' ? '/no/such/place' : canary.directory, at);
  };

  const prepare = async (layer: 'image' | 'disk', paths: string[], kind: InTheWay): Promise<MachineSpec> => {
    const imageDir = join(bench.home, 'image');
    // Other names of the same files; only the places are its own.
    execFileSync('cp', ['--archive', '--reflink=auto', '--', await tinyImage(), imageDir]);
    const spec = bench.spec({ image: imageRootOf(imageDir), mounts: [mountAt(workspaceDir)] });
    for (const path of paths) put(layer === 'image' ? imageDir : join(spec.diskDir, 'upper'), path, kind);
    return spec;
  };

  test.each(cases)(
    'with $kind of its $layer at $what starts, and none of them leads to the host',
    async (row) => {
      const spec = await prepare(row.layer, row.paths, row.kind);
      const { guest } = await bench.driver.start(spec);
      const { stdout } = await shellIn(
        guest,
        `for path in ${row.paths.join(' ')}; do cat /$path/secret; echo x > /$path/planted; done
      for path in run workspace dev/shm; do echo x > /$path/here && cat /$path/here; done
      test -e /proc/self/status && test -w /dev/null && echo whole`,
      );
      expect(canary.damage()).toEqual([]);
      expect(stdout).toBe('x\nx\nx\nwhole\n');
      expect(readdirSync(workspaceDir)).toContain('here');
      await bench.driver.sweep(new Set());
      const again = await bench.driver.start(spec);
      expect((await shellIn(again.guest, 'cat /workspace/here')).stdout).toBe('x\n');
      expect(canary.damage()).toEqual([]);
    },
  );

  test('keeps what stood where something is mounted, under another name', async () => {
    const spec = await prepare('disk', ['run'], 'files');
    const { guest } = await bench.driver.start(spec);
    expect((await shellIn(guest, 'cat /run.set-aside')).stdout).toBe('in the way');
  });

  test.each(['/', '/run', '/proc', '/dev', '/dev/shm', '/workspace', '/root/../..', '/tmp/x'])(
    'whose /tmp leads to its own %s starts whole',
    async (target) => {
      const spec = bench.spec({ mounts: [mountAt(workspaceDir)] });
      symlinkSync(target, join(spec.diskDir, 'upper/tmp'));
      const { guest } = await bench.driver.start(spec);
      const script =
        'test -e /proc/self/status && test -w /dev/null && ls /bin/sh && echo x > /workspace/here && echo x > /dev/shm/x';
      expect((await shellIn(guest, script)).stdout).toBe('/bin/sh\n');
      expect(readdirSync(workspaceDir)).toEqual(['here']);
    },
  );

  test('that has no /tmp any more starts', async () => {
    const spec = bench.spec();
    // As an overlay notes that it was removed.
    execFileSync('mknod', [join(spec.diskDir, 'upper/tmp'), 'c', '0', '0']);
    const { guest } = await bench.driver.start(spec);
    expect((await shellIn(guest, 'echo alive')).stdout).toBe('alive\n');
  });
});

describe.each(drivers)('the pool below a sandbox of the driver $name', ({ name, missing }) => {
  test('answers to nobody inside: no file there takes the calls of its filesystem', async ({ skip }) => {
    if (missing) skip('this machine has no runsc');
    await using daemon = await RunningDaemon.start();
    await using sandbox = await daemon.client.sandboxes.create({ driver: name });
    const probe = join(daemon.home, 'probe');
    await promisify(execFile)('cc', ['-static', '-O1', '-o', probe, poolProbe]);
    await sandbox.files.write('/root/probe', readFileSync(probe), { mode: '755' });
    const { stdout } = await sandbox.exec(
      `/root/probe / /root /root/probe /tmp /run /run/coppice /run/coppice/agent /run/coppice-agent /proc/1/exe /bin/bash`,
    );
    expect(stdout).toContain(name === 'container' ? '/run/coppice/agent asked' : '/run/coppice-agent asked');
    expect(stdout.split('\n').filter((line) => line.includes(' told '))).toEqual([]);
  });
});
