import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const source = fileURLToPath(new URL('./escape-probe.c', import.meta.url));

describe('root inside a sandbox, reached through the API,', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let scratch: string;
  let secretFile: string;

  beforeAll(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'coppice-escape-'));
    secretFile = join(scratch, 'secret-of-the-host');
    writeFileSync(secretFile, 'canary');
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'prisoner' });
    const probe = join(scratch, 'probe');
    await promisify(execFile)('cc', ['-static', '-O1', '-o', probe, source]);
    await sandbox.files.write('/root/probe', readFileSync(probe), { mode: '755' });
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    rmSync(scratch, { recursive: true, force: true });
  });

  const shell = (command: string) => sandbox.exec(command, { timeout_ms: 60_000 });

  test('is refused every system call that reaches the host', async () => {
    const { stdout, exit_code: code } = await sandbox.exec(['/root/probe', String(daemon.pid), secretFile]);
    expect(code).toBe(0);
    const lines = stdout.trim().split('\n');
    expect(lines).toHaveLength(19);
    expect(lines.filter((line) => line.endsWith(' allowed'))).toEqual([]);
    expect((await daemon.client.health()).status).toBe('ok');
  });

  test.each([
    ['mounts a filesystem', 'mount -t tmpfs none /mnt || mount -t tmpfs none /tmp'],
    ['mounts what the kernel shows', 'mkdir -p /root/p && mount -t proc none /root/p'],
    ['binds what is there', 'mkdir -p /root/b && mount --bind / /root/b'],
    ['makes /proc/sys writable', 'mount -o remount,rw /proc/sys'],
    [
      'mounts control groups to set a release agent',
      'mkdir -p /root/c && mount -t cgroup -o memory none /root/c',
    ],
    ['mounts control groups in new namespaces', 'unshare -UrmC mount -t cgroup none /mnt'],
    ['makes a device of a disk', 'mknod /root/vda b 254 0'],
    ['makes a device of memory', 'mknod /root/mem c 1 1'],
    ['enters the namespaces of PID 1', 'nsenter -t 1 -a true'],
    ['makes a user namespace', 'unshare -U true'],
    ['makes a network namespace', 'unshare -n true'],
    ['names the program that gets core dumps', "echo '|/root/probe' > /proc/sys/kernel/core_pattern"],
    ['names the program that loads modules', 'echo /root/probe > /proc/sys/kernel/modprobe'],
    ['names the program that hears of devices', 'echo /root/probe > /sys/kernel/uevent_helper'],
    ['restarts the machine', 'echo b > /proc/sysrq-trigger'],
    ['writes to /sys', 'touch /sys/made || mkdir /sys/fs/made'],
  ])('fails when it %s', async (_, command) => {
    const { exit_code: code, stderr } = await shell(command);
    expect(code, stderr).not.toBe(0);
  });

  test('finds no file of the kernel to write to, no release agent and no device', async () => {
    const writable = await shell('find /sys /proc/sys /proc/irq /proc/bus -type f -writable 2>/dev/null');
    expect(writable.timed_out).toBe(false);
    // Settings that belong to the namespaces of the sandbox itself would be fine, but are closed too.
    expect(writable.stdout).toBe('');
    expect((await shell('find / -xdev -name release_agent; find /sys -name release_agent')).stdout).toBe('');
    const devices = await shell('find / -xdev \\( -type b -o -type c \\) -not -path "/dev/*"');
    expect(devices.stdout).toBe('');
  });

  test('sees no process, file, mount or socket of the host', async () => {
    const processes = (await shell('cat /proc/[0-9]*/cmdline | tr "\\0" " "')).stdout;
    expect(processes).not.toContain(daemon.home);
    for (const path of [secretFile, `/proc/${daemon.pid}/root${secretFile}`, `/proc/1/root${secretFile}`])
      expect((await shell(`cat ${path}`)).exit_code, path).not.toBe(0);
    const everything = await shell(
      'cat /proc/self/mountinfo /proc/self/cgroup /proc/1/environ /proc/net/unix',
    );
    expect(everything.stdout).not.toContain(daemon.home);
    expect(everything.stdout).not.toContain(daemon.token);
    expect((await shell(`test -e ${daemon.socket}`)).exit_code).not.toBe(0);
  });

  test('does not reach the port of the daemon', async () => {
    const { port } = new URL(daemon.url);
    for (const host of ['127.0.0.1', '0.0.0.0', 'localhost']) {
      const { exit_code: code } = await shell(`exec 3<>/dev/tcp/${host}/${port}`);
      expect(code, host).not.toBe(0);
    }
  });

  test('keeps what it writes to itself, also through another name of a file of the image', async () => {
    await using neighbour = await daemon.client.sandboxes.create();
    const before = (await neighbour.exec('cat /etc/passwd')).stdout;
    const { exit_code: code } = await shell(
      'ln /etc/passwd /etc/other-name && echo intruder >> /etc/other-name',
    );
    expect(code).toBe(0);
    expect((await neighbour.exec('cat /etc/passwd')).stdout).toBe(before);
    await using later = await daemon.client.sandboxes.create();
    expect((await later.exec('cat /etc/passwd')).stdout).toBe(before);
  });

  test('changed nothing of the host by all this', async () => {
    expect(readFileSync('/proc/sys/kernel/core_pattern', 'utf8')).not.toContain('/root/probe');
    expect(readFileSync(secretFile, 'utf8')).toBe('canary');
    expect((await sandbox.exec('echo alive')).stdout).toBe('alive\n');
  });
});
