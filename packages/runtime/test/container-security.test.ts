import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { DriverWorkbench, mountAt, runIn, shellIn, tinyImage } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { makeContainerDriver } from './container/make-container-driver.ts';

const open = async () => DriverWorkbench.open(await tinyImage(), makeContainerDriver);

/** Chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap. */
const grantedCapabilities = '00000000800405fb';

test('programs of a sandbox have few capabilities, no new privileges and a filter of system calls', async () => {
  await using bench = await open();
  const { guest } = await bench.start();
  const { stdout } = await shellIn(guest, 'cat /proc/self/status');
  expect(stdout).toMatch(new RegExp(`^CapEff:\\s+${grantedCapabilities}$`, 'm'));
  expect(stdout).toMatch(new RegExp(`^CapPrm:\\s+${grantedCapabilities}$`, 'm'));
  expect(stdout).toMatch(/^NoNewPrivs:\s+1$/m);
  expect(stdout).toMatch(/^Seccomp:\s+2$/m);
  const user = await shellIn(guest, 'cat /proc/self/status', { user: 'user' });
  expect(user.stdout).toMatch(/^CapEff:\s+0+$/m);
});

test('the first process keeps nothing open that is a file of the host, which who can trace it could fill', async () => {
  await using bench = await open();
  const { pid, guest } = await bench.start();
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  expect(links.length).toBeGreaterThan(3);
  expect(links.filter((link) => !/^(\/dev\/null$|socket:|pipe:|anon_inode:)/.test(link))).toEqual([]);
  expect((await shellIn(guest, 'echo hello >&2')).stderr).toBe('hello\n');
});

test('every sandbox has a range of ids and namespaces of its own', async () => {
  await using bench = await open();
  const machines = [await bench.start(), await bench.start()];
  const maps = machines.map(({ pid }) =>
    readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim().split(/\s+/).map(Number),
  );
  for (const [inside, outside, count] of maps) {
    expect([inside, count]).toEqual([0, 65_536]);
    expect(outside).toBeGreaterThanOrEqual(0x20000000);
  }
  expect(maps[0]).not.toEqual(maps[1]);
  for (const kind of ['user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup']) {
    const spaces = [...machines.map(({ pid }) => `/proc/${pid}/ns/${kind}`), `/proc/self/ns/${kind}`];
    expect(new Set(spaces.map((path) => readlinkSync(path))).size, kind).toBe(3);
  }
});

test('system calls that reach beyond a sandbox are refused, and those that programs probe for are unknown', async () => {
  await using bench = await open();
  const workspaceDir = join(bench.home, 'workspace');
  mkdirSync(workspaceDir);
  const source = fileURLToPath(new URL('./container/syscall-probe.c', import.meta.url));
  await promisify(execFile)('cc', ['-static', '-O1', '-o', join(workspaceDir, 'probe'), source]);
  const { guest } = await bench.start({ mounts: [mountAt(workspaceDir)] });
  const { stdout } = await runIn(guest, ['/workspace/probe']);
  const answers = Object.fromEntries(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' ')),
  );
  const named = (answer: string) => Object.keys(answers).filter((name) => answers[name] === answer);
  expect(named('allowed').sort()).toEqual(
    ['link-netlink', 'mknod-fifo', 'personality-read', 'socket-option', 'tcp-socket', 'unix-pair'].sort(),
  );
  expect(named('ENOSYS').sort()).toEqual(['clone3', 'io_setup', 'memfd_secret', 'unknown']);
  expect(named('EAFNOSUPPORT').sort()).toEqual(['crypto-socket', 'packet-socket', 'tipc-pair', 'vsock']);
  expect(named('EPROTONOSUPPORT').sort()).toEqual(['audit-netlink', 'process-netlink']);
  expect(named('EPERM').length, stdout).toBe(Object.keys(answers).length - 16);
});

test('a crash inside runs no program of the host, whatever limit of core dumps a process asks for', async () => {
  await using bench = await open();
  const { guest } = await bench.start();
  const limit = async (before: string) =>
    /^Max core file size +(\S+) +(\S+)/m
      .exec((await shellIn(guest, `${before} cat /proc/self/limits`)).stdout)
      ?.slice(1);
  // With 0 the kernel would still hand the dump to a program that core_pattern names; with 1 it does not.
  const off = await limit('');
  expect([
    ['1', '1'],
    ['0', '0'],
  ]).toContainEqual(off);
  for (const before of ['ulimit -S -c 0;', 'ulimit -H -c 0;', 'ulimit -c 0;', 'ulimit -c unlimited;'])
    expect(await limit(before), before).toEqual(off);
  expect((await shellIn(guest, 'ulimit -n 100; ulimit -n')).stdout).toBe('100\n');
});

test('a sandbox goes before anything of the host when the machine runs out of memory', async () => {
  await using bench = await open();
  const { pid, guest } = await bench.start();
  expect(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8')).toBe('800\n');
  expect((await shellIn(guest, 'cat /proc/self/oom_score_adj')).stdout).toBe('800\n');
});

test('the kernel cannot be changed through files, whoever asks', async () => {
  await using bench = await open();
  const { guest } = await bench.start();
  const places = [
    '/proc/sys/kernel/core_pattern',
    '/proc/sys/net/ipv4/ip_forward',
    '/proc/sys/kernel/shmmax',
    '/proc/sysrq-trigger',
    '/proc/irq/default_smp_affinity',
    '/sys/devices/system/cpu/cpu0/online',
    '/sys/made-by-me',
    '/run/coppice/agent',
    '/proc/1/root/run/coppice/agent',
  ];
  for (const place of places) {
    const { code, stderr } = await shellIn(guest, `echo 1 > ${place}`);
    expect(code, `${place}: ${stderr}`).not.toBe(0);
  }
  // Without the files of the cgroup hierarchies there is no release_agent to set.
  expect((await shellIn(guest, 'find / -name release_agent -not -path "/proc/*"')).stdout).toBe('');
  expect((await shellIn(guest, 'cat /proc/keys /proc/locks /proc/timer_list /proc/kcore')).stdout).toBe('');
});

test('nothing of the host is reachable from a sandbox: mounts, descriptors, processes', async () => {
  await using bench = await open();
  const machine = await bench.start();
  const mounts = readFileSync(`/proc/${machine.pid}/mounts`, 'utf8');
  expect(mounts.split('\n').filter((line) => line.includes(bench.home))).toEqual([]);
  expect((await shellIn(machine.guest, 'ls /proc/1/fd')).stdout).not.toBe('');
  const pids = (await shellIn(machine.guest, 'ps -e -o pid=,comm=')).stdout.trim().split('\n');
  expect(pids[0]).toMatch(/^\s*1 agent$/);
  expect(pids.length).toBeLessThan(6);
});

test('every mount of a sandbox bears what keeps it harmless', async () => {
  await using bench = await open();
  const workspaceDir = join(bench.home, 'workspace');
  mkdirSync(workspaceDir);
  const { pid } = await bench.start({ mounts: [mountAt(workspaceDir)] });
  const mounts = readFileSync(`/proc/${pid}/mounts`, 'utf8').trim().split('\n');
  const flags = new Map(mounts.map((line) => [line.split(' ')[1]!, line.split(' ')[3]!.split(',')]));
  const without = (flag: string) => [...flags.keys()].filter((place) => !flags.get(place)!.includes(flag));
  const nodes = ['full', 'null', 'random', 'tty', 'urandom', 'zero'].map((name) => `/dev/${name}`);
  // A queue holds no files that could be run.
  expect(without('nosuid')).toEqual(['/dev/mqueue']);
  expect(without('nodev').sort()).toEqual([...nodes, '/dev/mqueue', '/dev/pts'].sort());
  const kept = ['/', '/dev/mqueue', '/dev/pts', '/dev/shm', '/proc', '/run', '/workspace', ...nodes];
  expect(without('ro').sort()).toEqual(kept.sort());
});

test('devices that programs expect are there, and no others', async () => {
  await using bench = await open();
  const { guest } = await bench.start();
  const script = 'echo x > /dev/null && head -c 4 /dev/urandom | wc -c && echo x > /dev/shm/x && ls /dev';
  const { stdout } = await shellIn(guest, script, { user: 'user' });
  expect(stdout.split('\n').filter(Boolean)).toEqual([
    '4',
    ...['core', 'fd', 'full', 'mqueue', 'null', 'ptmx', 'pts', 'random', 'shm', 'stderr', 'stdin', 'stdout'],
    ...['tty', 'urandom', 'zero'],
  ]);
});

test('files in memory are bounded below the limit, so that they cannot end the sandbox', async () => {
  await using bench = await open();
  const limits = { cpus: 2, memoryBytes: 64 << 20, pids: 64 };
  const { guest } = await bench.start({ limits });
  expect((await shellIn(guest, 'head -c 100M /dev/zero > /dev/shm/big')).stderr).toMatch(/No space left/);
  expect((await shellIn(guest, 'head -c 100M /dev/zero > /run/big')).stderr).toMatch(/No space left/);
  expect((await shellIn(guest, 'echo alive')).stdout).toBe('alive\n');
});
