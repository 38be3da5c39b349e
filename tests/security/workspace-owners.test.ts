import { execFile, execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Guest, MachineSpec } from '@coppice/runtime';
import { DriverWorkbench, eventually, mountAt, runIn, shellIn, tinyImage } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeContainerDriver } from '../../packages/runtime/test/container/make-container-driver.ts';
import { makeGvisorDriver } from '../../packages/runtime/test/gvisor/make-gvisor-driver.ts';
import { makeWithCriu, whyNoCriu } from './with-criu.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const probeSource = fileURLToPath(new URL('./set-id-probe.c', import.meta.url));
const nobody = 65_534;

const cases = [
  { driver: 'container', make: makeContainerDriver, missing: false },
  { driver: 'gvisor', make: makeGvisorDriver, missing: !hasRunsc },
].flatMap((row) => [
  { ...row, whose: 'root', owner: { uid: 0, gid: 0 } },
  { ...row, whose: 'a developer', owner: { uid: 1000, gid: 1001 } },
]);

describe.each(cases)('a workspace of $whose in the driver $driver', ({ make, missing, owner }) => {
  let scratch: string;
  let probe: string;
  let bench: DriverWorkbench;
  let workspaceDir: string;
  let spec: MachineSpec;
  let guest: Guest;
  beforeAll(async () => {
    scratch = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-owners-')));
    chmodSync(scratch, 0o755);
    probe = join(scratch, 'probe');
    await promisify(execFile)('cc', ['-static', '-O1', '-o', probe, probeSource]);
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));
  beforeEach(async ({ skip }) => {
    if (missing) skip('this machine has no runsc');
    workspaceDir = mkdtempSync(join(scratch, 'given-'));
    writeFileSync(join(workspaceDir, 'existing'), 'before\n');
    for (const path of [workspaceDir, join(workspaceDir, 'existing')]) chownSync(path, owner.uid, owner.gid);
    chmodSync(workspaceDir, 0o755);
    bench = await DriverWorkbench.open(await tinyImage(), make);
    spec = bench.spec({ mounts: [mountAt(workspaceDir)] });
    mkdirSync(join(spec.diskDir, 'upper/root'));
    execFileSync('cp', [probe, join(spec.diskDir, 'upper/root/probe')]);
    guest = (await bench.driver.start(spec)).guest;
  });
  afterEach(() => bench?.[Symbol.asyncDispose]());

  /** What somebody of the host without any rights becomes by it. The sandbox may hold it open for writing, so it is ended. */
  const runAsNobody = async (name: string, word: string): Promise<string> => {
    await bench.driver.sweep(new Set());
    return execFileSync(join(workspaceDir, name), [word], { uid: nobody, gid: nobody, encoding: 'utf8' });
  };

  const onHost = (name: string) => statSync(join(workspaceDir, name));
  const withSetId = (): string =>
    execFileSync('find', [workspaceDir, '!', '-type', 'd', '-perm', '/6000'], { encoding: 'utf8' });

  test('is edited by root inside as by its owner, whose all of it is on the host', async () => {
    const { stdout } = await shellIn(
      guest,
      `cd /workspace && echo after >> existing && mkdir -p made/deeper && echo x > made/deeper/file &&
       ln -s existing link && chmod 750 made/deeper/file && mv made/deeper/file made/moved && stat -c %u:%g existing made link`,
    );
    expect(stdout).toBe('0:0\n0:0\n0:0\n');
    expect(readFileSync(join(workspaceDir, 'existing'), 'utf8')).toBe('before\nafter\n');
    for (const name of ['existing', 'made', 'made/deeper', 'made/moved'])
      expect(onHost(name), name).toMatchObject(owner);
    expect(onHost('made/moved').mode & 0o7777).toBe(0o750);
  });

  test('gets no file on the host that runs as its owner for others, whatever way root inside takes', async () => {
    const { stdout } = await runIn(guest, ['/root/probe', '/workspace']);
    // Each works but for the bits; what a filter cannot judge is unknown.
    const failed = stdout.split('\n').filter((line) => line !== '' && !line.endsWith(' done'));
    expect(
      failed.filter(
        (line) => !/^(openat2|fchmodat2|openat without a name) .*not (implemented|supported)$/.test(line),
      ),
    ).toEqual([]);
    await shellIn(
      guest,
      `cd /workspace; cp /root/probe tool; chmod 4755 tool; chmod u+s tool; chmod g+s tool; chmod 6755 tool
       cp /root/probe /root/set; chmod 6755 /root/set; cp -p /root/set copied; cp -a /root/set archived; mv /root/set moved
       touch /root/t; tar -C /root -cf /root/a.tar --mode=6755 t; tar -xpf /root/a.tar`,
    );
    expect(withSetId()).toBe('');
    expect(await runAsNobody('tool', '--who')).toBe(`${nobody} ${nobody}\n`);
  });

  test('gets no file on the host that has capabilities there', async () => {
    await shellIn(
      guest,
      'cd /workspace; cp /root/probe tool; chmod 755 tool; setcap cap_setuid,cap_setgid+ep tool',
    );
    expect(await runAsNobody('tool', '--become-root')).toBe(`${nobody} ${nobody}\n`);
  });

  test('leaves set-id bits to files of the sandbox itself, as packages have them', async () => {
    const { stdout, stderr } = await shellIn(
      guest,
      `cd /root; cp probe set; chmod 4755 set; cp -p set copied; mkdir own; chmod 2775 own; mkdir /workspace/d; chmod 2775 /workspace/d
       touch t; chown 1000:1000 t; chmod 6711 /root/t; tar -cf a.tar set own; mkdir out; tar -C out -xpf a.tar
       stat -c '%a %n' set copied own t out/set out/own /workspace/d`,
    );
    expect(stderr).toBe('');
    expect(stdout.split('\n')).toEqual([
      ...['4755 set', '4755 copied', '2775 own', '6711 t', '4755 out/set', '2775 out/own'],
      ...['2775 /workspace/d', ''],
    ]);
    const user = await shellIn(
      guest,
      'cd /home/user; cp /bin/cat mine; chmod 4711 mine; stat -c %a mine; chmod 4755 /bin/cat',
      {
        user: 'user',
      },
    );
    expect(user).toMatchObject({
      stdout: '4711\n',
      code: 1,
      stderr: expect.stringContaining('not permitted'),
    });
  });

  test('stays so when the driver that started it is gone', async () => {
    await bench.renewDriver();
    const again = await bench.driver.adopt(spec);
    const { stdout } = await shellIn(
      again!.guest,
      'cp /root/probe /root/set; cp /root/probe /workspace/set; chmod 6755 /root/set /workspace/set; stat -c %a /root/set /workspace/set',
    );
    expect(stdout).toBe('6755\n755\n');
    expect(withSetId()).toBe('');
  });

  test('keeps no set-id bit of its own on a file that root inside has written to', async () => {
    const tool = join(workspaceDir, 'trusted');
    writeFileSync(tool, 'the owner made this\n');
    chownSync(tool, owner.uid, owner.gid);
    chmodSync(tool, 0o6755);
    await shellIn(
      guest,
      'cat /root/probe > /workspace/trusted; dd if=/root/probe of=/workspace/trusted conv=notrunc',
    );
    expect(withSetId()).toBe('');
  });

  test('gives root inside nothing of others: neither their files there nor their names', async () => {
    const other = owner.uid === 0 ? 1000 : 0;
    const theirs = join(workspaceDir, 'theirs');
    writeFileSync(theirs, 'kept\n');
    chownSync(theirs, other, other);
    chmodSync(theirs, 0o644);
    const script = `cd /workspace; echo x >> theirs; chmod 777 theirs; chown 0 theirs
      for id in 1 33 1000 65533; do echo x > as-$id; chown $id:$id as-$id; done; cat theirs`;
    expect((await shellIn(guest, script)).stdout).toBe('kept\n');
    expect(onHost('theirs')).toMatchObject({ uid: other, gid: other, mode: 0o100644 });
    for (const id of [1, 33, 1000, 65_533]) {
      const { uid, gid } = onHost(`as-${id}`);
      // Nobody of the host has them: they are far beyond what accounts and services are given.
      for (const given of [uid, gid]) expect(given).toBeGreaterThan(0x1000_0000);
      expect((await shellIn(guest, `stat -c %u:%g /workspace/as-${id}`)).stdout).toBe(`${id}:${id}\n`);
    }
  });
});

test('a container whose guard of modes was killed gets no set-id modes at all, and goes on', async () => {
  await using bench = await DriverWorkbench.open(await tinyImage(), makeContainerDriver);
  const workspaceDir = join(bench.home, 'given');
  mkdirSync(workspaceDir);
  const spec = bench.spec({ mounts: [mountAt(workspaceDir)] });
  const { guest } = await bench.driver.start(spec);
  const processes = readdirSync('/proc').filter(
    (pid) => /^\d+$/.test(pid) && readIfThere(`/proc/${pid}/cgroup`).includes(spec.id),
  );
  const guards = processes.filter((pid) => readIfThere(`/proc/${pid}/cmdline`).includes('coppice-launch'));
  expect(guards).toHaveLength(1);
  process.kill(Number(guards[0]), 'SIGKILL');
  await eventually('it is gone', () => !existsSync(`/proc/${guards[0]}/exe`));
  const { stdout, code } = await shellIn(
    guest,
    'cd /workspace; cp /bin/true a; chmod 755 a; stat -c %a a; chmod 4755 a',
  );
  expect({ stdout, code }).toEqual({ stdout: '755\n', code: 1 });
  expect(statSync(join(workspaceDir, 'a')).mode & 0o7777).toBe(0o755);
});

const readIfThere = (path: string): string => {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // The process ended between the list and the look.
    return '';
  }
};

describe.each([
  {
    driver: 'container',
    make: makeWithCriu,
    missing: whyNoCriu,
  },
  { driver: 'gvisor', make: makeGvisorDriver, missing: hasRunsc ? undefined : 'this machine has no runsc' },
])(
  'a workspace of a sandbox that goes on from its memory in the driver $driver',
  ({ driver, make, missing }) => {
    test('is its owner’s still, and gets no set-id bits', async ({ skip }) => {
      if (missing !== undefined) skip(missing);
      await using bench = await DriverWorkbench.open(await tinyImage(), make);
      const workspaceDir = join(bench.home, 'given');
      mkdirSync(workspaceDir);
      chownSync(workspaceDir, 1000, 1001);
      const first = bench.spec({ mounts: [mountAt(workspaceDir)] });
      const source = await bench.driver.start(first);
      await source.guest.startJob({ argv: ['/bin/sh', '-c', 'while :; do sleep 0.02; done'] });
      const memoryDir = join(bench.home, 'memory');
      const second = bench.spec({ mounts: [mountAt(workspaceDir)] });
      await source.checkpoint(memoryDir, async () => {
        execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
      });
      const script = (name: string) =>
        `cd /workspace; cp /bin/true ${name}; chmod 755 ${name}; chmod 6755 ${name}; stat -c %u ${name}`;
      const { guest } = await bench.driver.restore(second, memoryDir);
      for (const [name, one] of [
        ['source', source.guest],
        ['restored', guest],
      ] as const) {
        expect((await shellIn(one, script(name))).stdout, name).toBe('0\n');
        expect(statSync(join(workspaceDir, name))).toMatchObject({ uid: 1000, gid: 1001, mode: 0o100755 });
      }
    });

    test('is not of a fork, which goes on with a /workspace of its own', async ({ skip }) => {
      if (missing !== undefined) skip(missing);
      await using bench = await DriverWorkbench.open(await tinyImage(), make);
      const workspaceDir = join(bench.home, 'given');
      mkdirSync(workspaceDir);
      const first = bench.spec({ mounts: [mountAt(workspaceDir)] });
      const source = await bench.driver.start(first);
      await shellIn(source.guest, 'echo shared > /workspace/shared');
      const memoryDir = join(bench.home, 'memory');
      const second = bench.spec();
      await source.checkpoint(memoryDir, async () => {
        execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
      });
      const { guest } = await bench.driver.restore(second, memoryDir);
      expect((await shellIn(guest, 'echo own > /workspace/own; ls /workspace')).stdout).toBe('own\n');
      expect(readdirSync(workspaceDir)).toEqual(['shared']);
    });

    test('is not forgotten where the memory had none: it is mounted, or refused', async ({ skip }) => {
      if (missing !== undefined) skip(missing);
      await using bench = await DriverWorkbench.open(await tinyImage(), make);
      const workspaceDir = join(bench.home, 'given');
      mkdirSync(workspaceDir);
      const first = bench.spec();
      const source = await bench.driver.start(first);
      const memoryDir = join(bench.home, 'memory');
      const second = bench.spec({ mounts: [mountAt(workspaceDir)] });
      await source.checkpoint(memoryDir, async () => {
        execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
      });
      const restoring = bench.driver.restore(second, memoryDir);
      if (driver === 'container') {
        await expect(restoring).rejects.toMatchObject({
          code: 'unsupported',
          message: expect.stringContaining('had none'),
        });
        return;
      }
      await shellIn((await restoring).guest, 'cp /bin/true /workspace/made; chmod 6755 /workspace/made');
      expect(statSync(join(workspaceDir, 'made')).mode & 0o6000).toBe(0);
    });
  },
);
