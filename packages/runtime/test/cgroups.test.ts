import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { homeKey } from '@coppice/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { type CgroupMounts, parseCgroupMounts } from '../src/cgroups/cgroup-mounts.ts';
import { CgroupV2 } from '../src/cgroups/cgroup-v2.ts';
import { HomeCgroups } from '../src/cgroups/home-cgroups.ts';
import type { SandboxCgroup } from '../src/cgroups/sandbox-cgroup.ts';

const limits = { cpus: 0.5, memoryBytes: 64 << 20, pids: 32 };
const mounts = parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8'));

/** The ways in which this machine can be seen: as it is, and with version 1 alone where that has all controllers. */
const layouts: [string, CgroupMounts][] = [['as mounted here', mounts]];
if (['cpu', 'memory', 'pids', 'cpuacct', 'freezer'].every((controller) => mounts.v1.has(controller))) {
  layouts.push(['version 1 alone', { v1: mounts.v1, v2: null }]);
}

async function makeGroup(layout: CgroupMounts): Promise<{ group: SandboxCgroup; child: ChildProcess }> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-cgroups-'));
  const home = new HomeCgroups(`coppice-${homeKey(directory)}`, { mounts: layout });
  home.prepare();
  const group = home.group('sb_one');
  for (const directory of group.directories) mkdirSync(directory);
  for (const { file, value } of group.settings(limits)) writeFileSync(file, value);
  const child = spawn('/bin/sh', ['-c', 'while :; do echo; done'], { stdio: ['ignore', 'pipe', 'ignore'] });
  for (const directory of group.directories)
    writeFileSync(join(directory, 'cgroup.procs'), String(child.pid));
  onTestFinished(async () => {
    await group.kill();
    await group.remove();
    home.release();
    rmSync(directory, { recursive: true });
  });
  return { group, child };
}

const processState = (pid: number): string | undefined =>
  /^State:\s+(\w)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];

test.each(layouts)('a group kills every process, frozen ones too (%s)', async (_, layout) => {
  const { group, child } = await makeGroup(layout);
  const ended = once(child, 'exit');
  await group.freeze();
  await group.kill();
  expect(await ended).toEqual([null, 'SIGKILL']);
  await group.remove();
  await group.remove();
});

test.each(layouts)('a frozen group uses no time, and goes on when it is thawed (%s)', async (_, layout) => {
  const { group, child } = await makeGroup(layout);
  child.stdout!.resume();
  while (group.usage().cpuUsec === 0) await new Promise((resolve) => setImmediate(resolve));
  await group.freeze();
  // The kernel books the last microseconds of a process a little after it stopped.
  let cpuUsec = -1;
  while (group.usage().cpuUsec !== cpuUsec) {
    cpuUsec = group.usage().cpuUsec;
    for (let look = 0; look < 500; look++) await new Promise((resolve) => setImmediate(resolve));
  }
  await group.thaw();
  await group.thaw();
  while (group.usage().cpuUsec === cpuUsec) await new Promise((resolve) => setImmediate(resolve));
  expect(processState(child.pid!)).not.toBe('T');
});

test.each(layouts)(
  'limits can be lowered, raised, and are refused below what is in use (%s)',
  async (_, layout) => {
    const { group } = await makeGroup(layout);
    const read = (name: string) =>
      group.settings(limits).find(({ file }) => file.endsWith(name))?.file ?? group.settings(limits)[0]!.file;
    group.setLimits({ cpus: 2, memoryBytes: 32 << 20, pids: 16 });
    expect(readFileSync(read('pids.max'), 'utf8')).toBe('16\n');
    group.setLimits({ cpus: 1.5, memoryBytes: 128 << 20, pids: 64 });
    expect(readFileSync(read('pids.max'), 'utf8')).toBe('64\n');
    const memory = readFileSync(
      read(layout.v1.has('memory') ? 'memory.limit_in_bytes' : 'memory.max'),
      'utf8',
    );
    expect(Number(memory)).toBe(128 << 20);
    const cpu = readFileSync(read(layout.v1.has('cpu') ? 'cpu.cfs_quota_us' : 'cpu.max'), 'utf8');
    expect(Number.parseInt(cpu, 10)).toBe(150_000);
  },
);

test('a machine without the controllers that limits need is refused by name', () => {
  expect(() => new HomeCgroups('coppice-none', { mounts: { v1: new Map(), v2: null } })).toThrow(
    expect.objectContaining({ code: 'unsupported', message: expect.stringContaining('memory') }),
  );
});

test('mounts of both versions are told apart', () => {
  const text = [
    '30 25 0:26 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw',
    '31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct',
    '32 25 0:28 / /proc rw - proc proc rw',
  ].join('\n');
  expect(parseCgroupMounts(text)).toEqual({
    v1: new Map([
      ['rw', '/sys/fs/cgroup/cpu,cpuacct'],
      ['cpu', '/sys/fs/cgroup/cpu,cpuacct'],
      ['cpuacct', '/sys/fs/cgroup/cpu,cpuacct'],
    ]),
    v2: '/sys/fs/cgroup/unified',
  });
});

test('version 2 turns its controllers on for children, sets limits and reads usage from its own files', () => {
  // A plain directory stands for the hierarchy: what matters here is which files are written and read.
  const mount = mkdtempSync(join(tmpdir(), 'coppice-cgroup2-'));
  onTestFinished(() => rmSync(mount, { recursive: true }));
  writeFileSync(join(mount, 'cgroup.subtree_control'), 'cpu\n');
  const hierarchy = new CgroupV2(mount, new Set(['cpu', 'memory', 'pids']));
  hierarchy.prepare('parent');
  expect(readFileSync(join(mount, 'cgroup.subtree_control'), 'utf8')).toBe('+memory +pids');
  expect(readFileSync(join(mount, 'parent/cgroup.subtree_control'), 'utf8')).toBe('+cpu +memory +pids');
  const settings = hierarchy
    .settings('parent', limits)
    .map(({ file, value }) => [file.slice(mount.length), value]);
  expect(settings).toEqual([
    ['/parent/cpu.max', '50000 100000'],
    ['/parent/memory.max', String(64 << 20)],
    ['/parent/memory.swap.max', '0'],
    ['/parent/pids.max', '32'],
  ]);
  writeFileSync(join(mount, 'parent/memory.current'), '9000\n');
  writeFileSync(join(mount, 'parent/memory.stat'), 'anon 5000\ninactive_file 1000\n');
  writeFileSync(join(mount, 'parent/memory.events'), 'oom 3\noom_kill 2\n');
  writeFileSync(join(mount, 'parent/pids.current'), '4\n');
  writeFileSync(join(mount, 'parent/cpu.stat'), 'usage_usec 1234\n');
  expect(hierarchy.usage('parent')).toEqual({ memoryBytes: 8000, oomKills: 2, pids: 4, cpuUsec: 1234 });
  expect(() => hierarchy.change('parent', { ...limits, memoryBytes: 100 })).toThrow(CoppiceError);
});
