import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { DriverWorkbench, eventually, guestProgram, mountAt, shellIn, tinyImage } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { HomeCgroups } from '../src/cgroups/home-cgroups.ts';
import { firstIdOf } from '../src/drivers/container/id-slots.ts';
import { Launcher } from '../src/drivers/container/launcher.ts';
import { LauncherRecord } from '../src/drivers/container/launcher-record.ts';
import { makeContainerDriver } from './container/make-container-driver.ts';

const open = async () => DriverWorkbench.open(await tinyImage(), makeContainerDriver);

/** The launch servers and standbys of one home, by what they were started with. */
const launchers = (homeKey: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
        return line.includes('coppice-launch\0serve') && line.includes(`coppice-${homeKey}`);
      } catch {
        return false;
      }
    });

const parentOf = (pid: number): number =>
  Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]);

test('a sandbox goes on, and its end is noticed, when the launcher is killed', async () => {
  await using bench = await open();
  const machine = await bench.start();
  const server = launchers(bench.homeKey).find((pid) => parentOf(pid) === process.pid);
  process.kill(server!, 'SIGKILL');
  expect((await shellIn(machine.guest, 'echo alive')).stdout).toBe('alive\n');
  await eventually('another launcher serves', () => {
    const others = launchers(bench.homeKey);
    return others.some((pid) => pid !== server && parentOf(pid) === process.pid);
  });
  process.kill(machine.pid, 'SIGKILL');
  await machine.exited;
  expect(bench.remains(machine.id)).toEqual([]);
  expect((await shellIn((await bench.start()).guest, 'echo more')).stdout).toBe('more\n');
});

test('a closed driver leaves no launcher, standby or cgroup behind', async () => {
  const bench = await open();
  await bench.start();
  expect(launchers(bench.homeKey).length).toBeGreaterThan(0);
  await bench[Symbol.asyncDispose]();
  expect(launchers(bench.homeKey)).toEqual([]);
  const named = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => / - cgroup2? /.test(line))
    .flatMap((line) => readdirSync(line.split(' ')[4]!));
  expect(named.filter((name) => name.includes(bench.homeKey))).toEqual([]);
});

test('only the agent of a sandbox runs beside it: bubblewrap is gone', async () => {
  await using bench = await open();
  const machine = await bench.start();
  await eventually('the sandbox has one process', async () => (await machine.usage()).pids === 1);
});

test('the last usage is still known after the end', async () => {
  await using bench = await open();
  const machine = await bench.start();
  await machine.stop(0);
  const usage = await machine.usage();
  expect(usage).toMatchObject({ pids: 0, memoryBytes: 0 });
  expect(usage.cpuUsec).toBeGreaterThan(0);
});

test('what an interrupted start left is cleared by the next start', async () => {
  await using bench = await open();
  const spec = bench.spec();
  const runDir = join(bench.home, 'run', spec.id);
  mkdirSync(runDir, { recursive: true });
  const record = { driver: 'container', bootId: 'of-another-life', slot: 3, init: { pid: 1, started: '1' } };
  writeFileSync(join(runDir, 'machine.json'), JSON.stringify(record));
  expect(await bench.driver.adopt(spec)).toBeUndefined();
  const machine = await bench.driver.start(spec);
  expect((await shellIn(machine.guest, 'echo up')).stdout).toBe('up\n');
});

test('a home with a very long path works', async () => {
  await using bench = await open();
  const home = join(bench.home, ...Array.from({ length: 4 }, () => 'x'.repeat(40)));
  mkdirSync(home, { recursive: true });
  const driver = makeContainerDriver(home, bench.homeKey);
  try {
    const machine = await driver.start(bench.spec());
    expect((await shellIn(machine.guest, 'echo far')).stdout).toBe('far\n');
    await machine.stop(0);
  } finally {
    await driver.sweep(new Set());
    await driver.close();
  }
});

test('the probe says what the driver stands on', async () => {
  await using bench = await open();
  expect(await bench.driver.probe()).toMatchObject({ usable: true, findings: [], memoryCompatibility: null });
});

test('a directory that was made for a machine that never came to be is swept', async () => {
  await using bench = await open();
  const machine = await bench.start();
  const left = [join(bench.home, 'run', 'sb_left'), join(bench.home, 'run', 'sb_half')];
  for (const directory of left) mkdirSync(directory);
  writeFileSync(join(left[1]!, 'machine.json'), '');
  await bench.driver.sweep(new Set([machine.id]));
  expect(readdirSync(join(bench.home, 'run'))).toEqual([machine.id]);
  expect((await shellIn(machine.guest, 'echo alive')).stdout).toBe('alive\n');
});

test('what the launcher of a dead daemon still starts is swept too', async () => {
  await using bench = await open();
  const cgroups = new HomeCgroups(`coppice-${bench.homeKey}`);
  cgroups.prepare();
  const launcher = new Launcher({
    program: guestProgram('coppice-launch'),
    agent: () => guestProgram('coppice-agent'),
    bubblewrap: '/usr/bin/bwrap',
    v1Parents: cgroups.v1Parents,
    standbys: 2,
    onStarted: (pid) => new LauncherRecord(join(bench.home, 'launchers.json')).add(pid),
  });
  launcher.warmUp();
  await eventually('processes stand by', () => launchers(bench.homeKey).length > 1);
  const held = launchers(bench.homeKey);
  for (const pid of held) process.kill(pid, 'SIGSTOP');
  const { id, hostname, image, diskDir, limits } = bench.spec();
  const runDir = join(bench.home, 'run', id);
  mkdirSync(runDir, { recursive: true });
  const group = cgroups.group(id);
  const { v2Directory } = group;
  const starting = launcher.start({
    ...{ id, runDir, hostname, image, diskDir, v2Directory, settings: group.settings(limits) },
    ...{ mounts: [], processors: undefined, shownCgroups: [] },
    ...{ firstId: firstIdOf(0), memoryBytes: limits.memoryBytes },
  });
  starting.catch(() => {});
  const closing = launcher.close();
  const sweeping = bench.driver.sweep(new Set());
  await eventually('what there is of it is swept', () => !existsSync(runDir));
  // As when the launcher had its directory open already.
  mkdirSync(runDir);
  for (const pid of held) process.kill(pid, 'SIGCONT');
  await Promise.all([closing, sweeping]);
  expect(bench.remains(id)).toEqual([]);
});

test('a disk that failed is told from a file that cannot be read', async () => {
  await using bench = await open();
  await using left = new AsyncDisposableStack();
  const tree = join(bench.home, 'tree');
  const image = join(bench.home, 'image');
  const workspaceDir = join(bench.home, 'workspace');
  for (const directory of [tree, workspaceDir]) mkdirSync(directory);
  const content = randomBytes(65_536);
  writeFileSync(join(tree, 'file'), content);
  await writeFile(image, '');
  await truncate(image, 128 * 1024 * 1024);
  const execute = promisify(execFile);
  await execute('mkfs.btrfs', ['-q', '-d', 'single', '--rootdir', tree, image]);
  // One bit, which the checksum of the filesystem finds.
  const file = openSync(image, 'r+');
  writeSync(file, Buffer.from([content[0]! ^ 1]), 0, 1, readFileSync(image).indexOf(content));
  closeSync(file);
  await execute('mount', ['-o', 'loop', image, workspaceDir]);
  left.defer(() => execute('umount', ['--lazy', workspaceDir]).then(() => {}));
  const machine = await bench.start({ mounts: [mountAt(workspaceDir)] });
  const failed = { code: 'internal', details: { errno: 'EIO' }, hint: expect.stringContaining('dmesg') };
  const { guest } = machine;
  await expect(buffer(guest.read('/workspace/file'))).rejects.toMatchObject(failed);
  await expect(buffer(guest.pack('/workspace'))).rejects.toMatchObject(failed);
  await expect(buffer(guest.read('/proc/1/mem'))).rejects.toMatchObject({ code: 'unsupported' });
  await machine.stop(0);
});
