import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon, SmallDisk } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);

/** Device and options of the filesystem that is the pool of a home. */
const poolMount = (home: string): { device: string; options: string } => {
  const lines = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const line = lines.find((text) => text.split(' ')[4] === join(home, 'pool'));
  const [, device, options] = line?.split(' - ')[1]?.split(' ') ?? [];
  if (device === undefined || options === undefined) throw new Error(`the pool of ${home} is not mounted`);
  return { device, options };
};

const isReadOnly = (home: string): boolean => poolMount(home).options.split(',').includes('ro');

describe('a disk of the home that is filled to its last block', () => {
  let disk: SmallDisk;
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let counter: number;

  beforeAll(async () => {
    disk = SmallDisk.make(1024);
    daemon = await RunningDaemon.start({ below: disk.directory });
    sandbox = await daemon.client.sandboxes.create({ name: 'steady' });
    await sandbox.exec('echo kept > /root/kept; head -c 30000000 /dev/urandom > /root/random; sync');
    await sandbox.snapshot({ name: 'early' });
    counter = (await sandbox.jobs.start('while :; do echo tick; sleep 0.01; done')).id;
  });
  afterAll(async () => {
    disk.makeRoom();
    await daemon[Symbol.asyncDispose]();
    disk[Symbol.dispose]();
  });

  async function counted(): Promise<number> {
    const found = (await sandbox.jobs.list()).find(({ id }) => id === counter);
    return found?.running ? found.log_bytes : -1;
  }

  const sum = async (of: Sandbox): Promise<string> =>
    (await of.exec('cat /root/random | tail -c 1000000 | od | tail -c 2000')).stdout;

  test('is said as such by every call that would add something, and by health and the doctor; what runs goes on', async () => {
    const before = await counted();
    const content = await sum(sandbox);
    disk.fill();
    const refused = { code: 'no_space' };
    await expect(sandbox.snapshot({ name: 'late' })).rejects.toMatchObject(refused);
    await expect(daemon.client.sandboxes.create()).rejects.toMatchObject(refused);
    await expect(sandbox.fork()).rejects.toMatchObject(refused);
    await expect(daemon.client.snapshots.fork('steady:early')).rejects.toMatchObject(refused);
    await expect(sandbox.restore('early')).rejects.toMatchObject(refused);
    await eventually('health says it', async () => {
      const { status, problems } = await daemon.client.health();
      return status === 'degraded' && problems.includes('disk space');
    });
    const doctor = await daemon.client.doctor();
    expect(doctor.healthy).toBe(false);
    expect(doctor.findings).toContainEqual(
      expect.objectContaining({ severity: 'error', check: 'disk space' }),
    );
    await eventually('who writes inside is told', async () => {
      const { exit_code: code, stderr } = await sandbox.exec(
        'head -c 40000000 /dev/urandom > /root/more && sync /root/more',
      );
      return code !== 0 && /No space left|quota exceeded/i.test(stderr);
    });
    await eventually('it counts on', async () => (await counted()) > before);
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
    expect(await sum(sandbox)).toBe(content);
    expect(isReadOnly(daemon.home)).toBe(false);
  });

  test('lets snapshots and sandboxes be deleted, and a daemon be stopped and started', async () => {
    await daemon.client.snapshots.delete('steady:early');
    await daemon.restart();
    expect((await daemon.client.health()).problems).toContain('disk space');
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
    await sandbox.stop({ grace_s: 0 });
    await sandbox.start();
    expect(isReadOnly(daemon.home)).toBe(false);
  });

  test('is forgotten once there is room: nothing has to be started again', async () => {
    disk.makeRoom();
    await eventually('it is well', async () => (await daemon.client.health()).status === 'ok');
    await sandbox.snapshot({ name: 'after' });
    const { sandboxes } = await daemon.client.snapshots.fork('steady:after');
    expect((await sandboxes[0]!.exec('cat /root/kept')).stdout).toBe('kept\n');
    await eventually('there is room inside', async () => {
      const { exit_code: code } = await sandbox.exec(
        'head -c 40000000 /dev/urandom > /root/more && sync /root/more',
      );
      return code === 0;
    });
  });
});

describe('a pool that has become read-only', () => {
  const toolDirectory = mkdtempSync(join(tmpdir(), 'coppice-tool-'));
  const limitLoop = join(toolDirectory, 'limit-loop');
  let disk: SmallDisk;
  let daemon: RunningDaemon;

  beforeAll(async () => {
    await run('cc', ['-O1', '-o', limitLoop, join(import.meta.dirname, 'limit-loop.c')]);
    disk = SmallDisk.make(1024);
    daemon = await RunningDaemon.start({ below: disk.directory });
  });
  afterAll(async () => {
    disk.makeRoom();
    await rm(toolDirectory, { recursive: true, force: true });
    await coppice('down');
    await daemon[Symbol.asyncDispose]();
    disk[Symbol.dispose]();
  });

  const coppice = async (...argv: string[]): Promise<{ code: number; stdout: string; stderr: string }> => {
    const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
    const env = { ...process.env, COPPICE_HOME: daemon.home };
    return run(process.execPath, [program, ...argv], { env }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      (error: { code: number; stdout: string; stderr: string }) => error,
    );
  };

  /** Its disk gives errors, and what is written next makes its filesystem give up. */
  async function breakPool(sandbox: Sandbox): Promise<void> {
    await run(limitLoop, [poolMount(daemon.home).device, String(1024 ** 2)]);
    await eventually('the pool gave up', async () => {
      await sandbox.exec('for n in $(seq 300); do echo $n > /root/$RANDOM; done; sync').catch(() => {});
      return isReadOnly(daemon.home);
    });
    await run(limitLoop, [poolMount(daemon.home).device, '0']);
  }

  test('is said by health and the doctor; `up` mounts it again, says what it ended, and what was kept is there', async () => {
    const sandbox = await daemon.client.sandboxes.create({ name: 'steady' });
    await sandbox.exec('echo kept > /root/kept; sync');
    await sandbox.snapshot({ name: 'early' });
    await breakPool(sandbox);
    await eventually('health says it', async () => (await daemon.client.health()).problems.includes('pool'));
    expect((await daemon.client.doctor()).findings).toContainEqual(
      expect.objectContaining({
        severity: 'error',
        check: 'pool',
        fix: expect.stringContaining('coppice up'),
      }),
    );
    await expect(sandbox.snapshot()).rejects.toMatchObject({ code: 'unavailable' });
    const { code, stdout, stderr } = await coppice('up', '--detach');
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toContain('read-only');
    expect(stdout).toContain('steady');
    expect(isReadOnly(daemon.home)).toBe(false);
    expect((await daemon.client.health()).status).toBe('ok');
    expect(await sandbox.inspect()).toMatchObject({
      state: 'failed',
      failure: 'it was ended because the pool had become read-only',
    });
    await sandbox.start();
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
    const { sandboxes } = await daemon.client.snapshots.fork('steady:early');
    expect((await sandboxes[0]!.exec('cat /root/kept')).stdout).toBe('kept\n');
    await sandboxes[0]!.destroy();
  });

  test('comes back by `up` also while its disk is still full, and goes on once there is room', async () => {
    const sandbox = daemon.client.sandboxes.at('steady');
    await breakPool(sandbox);
    disk.fill();
    await eventually('health says it', async () => (await daemon.client.health()).problems.includes('pool'));
    const { code, stderr } = await coppice('up', '--detach');
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(isReadOnly(daemon.home)).toBe(false);
    expect((await daemon.client.health()).problems).toEqual(['disk space']);
    await daemon.client.snapshots.delete('steady:early');
    disk.makeRoom();
    await eventually('it is well', async () => (await daemon.client.health()).status === 'ok');
    await sandbox.start();
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
  });
});
