import { Coppice, type Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';

const mebibyte = 2 ** 20;
const diskMb = 32;
const memoryMb = 64;
const space = 1;
const maxBytes = space * (diskMb + memoryMb) * mebibyte;
const mostSnapshots = 8;
/** Enough for three times what the limit allows. */
const rounds = 15;
/** Deleted data leaves the pool in the background. */
const patience = { timeout: 300_000, interval: 200 };

const limits = { snapshots_per_sandbox: mostSnapshots, snapshot_space_per_sandbox: space };

/** Repeats until it is refused; the error, or undefined when it never is. */
const untilRefused = async (step: (round: number) => Promise<unknown>): Promise<unknown> => {
  for (let round = 0; round < rounds; round++) {
    try {
      await step(round);
    } catch (error) {
      return error;
    }
  }
  return undefined;
};

describe('a sandbox with its own token', () => {
  let daemon: RunningDaemon;
  let admin: Sandbox;
  let visitor: Coppice;
  let own: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits } });
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    admin = await daemon.client.sandboxes.create({ disk_mb: diskMb, memory_mb: memoryMb });
    visitor = new Coppice({ url: daemon.url, token: admin.token! }, {});
    own = visitor.sandboxes.at(admin.id);
  });
  afterEach(async () => {
    visitor?.close();
    await admin?.destroy();
  });

  /** New data in the place of old; the disk gets room again a moment after files were deleted. */
  const rewrite = async (): Promise<void> => {
    const command = 'rm -f /root/data; sync; head -c 18M /dev/urandom > /root/data && sync';
    for (;;) if ((await own.exec(command)).exit_code === 0) return;
  };

  const refusal = (limit: string) =>
    expect.objectContaining({
      code: 'limit_reached',
      hint: expect.stringContaining(`coppice rm ${admin.name}:SNAPSHOT`),
      details: expect.objectContaining({ limit }),
    });

  const heldBytes = async (): Promise<number> => (await admin.inspect()).snapshots.held_bytes ?? 0;

  test('cannot keep more in snapshots than it is allowed, however often it deletes and writes anew', async () => {
    const error = await untilRefused(async (round) => {
      await rewrite();
      await own.snapshot({ name: `round-${round}` });
    });
    expect(error).toEqual(refusal('snapshot_space_per_sandbox'));
    const kept = await own.snapshots();
    expect(kept.length).toBeGreaterThan(1);
    await expect(own.snapshot()).rejects.toEqual(refusal('snapshot_space_per_sandbox'));
    expect(await own.snapshots()).toHaveLength(kept.length);
    expect((await own.exec('echo alive')).stdout).toBe('alive\n');
    // What is on its disk is not kept by any snapshot yet, so it may come on top.
    expect(await heldBytes()).toBeLessThanOrEqual(maxBytes + diskMb * mebibyte);

    // An admin is not held to it, and can make room.
    await admin.snapshot({ name: 'by-admin' });
    for (const { id } of await admin.snapshots()) await daemon.client.snapshots.delete(id);
    await admin.exec('rm -f /root/data; sync');
    await expect
      .poll(
        () =>
          own.snapshot({ name: 'again' }).then(
            ({ name }) => name,
            () => 'refused',
          ),
        patience,
      )
      .toBe('again');
  });

  test('cannot keep more by restoring, as undo snapshots count', async () => {
    const { name } = await own.snapshot({ name: 'start' });
    const error = await untilRefused(async () => {
      await rewrite();
      await own.restore(name);
    });
    expect(error).toEqual(refusal('snapshot_space_per_sandbox'));
    expect((await own.inspect()).state).toBe('running');
    expect((await own.exec('stat -c %s /root/data')).stdout).toBe(`${18 * mebibyte}\n`);
    await own.restore(name, { discard: true });
    expect((await own.exec('test -e /root/data')).exit_code).toBe(1);
    await expect.poll(heldBytes, patience).toBeLessThanOrEqual(maxBytes);
  });

  test('can take so many snapshots and no more, whatever they hold', async () => {
    const error = await untilRefused(() => own.snapshot());
    expect(error).toEqual(refusal('snapshots_per_sandbox'));
    expect((await admin.inspect()).snapshots).toMatchObject({
      count: mostSnapshots,
      max_count: mostSnapshots,
      max_bytes: maxBytes,
    });
    await admin.snapshot();
  });
});

describeWithMemory('the memory in checkpoints', ({ config }) => {
  test('counts as what a sandbox keeps with its own token', async () => {
    await using daemon = await RunningDaemon.start({ config: { ...config, limits } });
    await using sandbox = await daemon.client.sandboxes.create({ disk_mb: diskMb, memory_mb: 128 });
    const visitor = new Coppice({ url: daemon.url, token: sandbox.token! }, {});
    const own = visitor.sandboxes.at(sandbox.id);
    const error = await untilRefused(async () => {
      await own.exec('head -c 40M /dev/urandom > /dev/shm/data');
      await own.checkpoint();
    });
    visitor.close();
    expect(error).toMatchObject({ code: 'limit_reached', details: { limit: 'snapshot_space_per_sandbox' } });
    expect((await sandbox.exec('echo alive')).stdout).toBe('alive\n');
  });
});

test('nobody can take more snapshots than the home may have', async () => {
  await using daemon = await RunningDaemon.start({ config: { limits: { max_snapshots: 3 } } });
  await using one = await daemon.client.sandboxes.create();
  await using other = await daemon.client.sandboxes.create();
  await one.snapshot();
  await one.snapshot();
  const { id } = await other.snapshot();
  await expect(other.snapshot()).rejects.toMatchObject({
    code: 'limit_reached',
    hint: expect.stringContaining('coppice rm SANDBOX:SNAPSHOT'),
    details: { limit: 'max_snapshots', maximum: 3 },
  });
  await daemon.client.snapshots.delete(id);
  await one.snapshot();
});

describe('the limit of a disk', () => {
  test('counts what a fresh snapshot keeps until it is drawn anew, and never lets through more than its size', async () => {
    await using daemon = await RunningDaemon.start();
    await using sandbox = await daemon.client.sandboxes.create({ disk_mb: diskMb });
    const write = (name: string) =>
      sandbox.exec(`head -c 20M /dev/urandom > /root/${name} && sync /root/${name}`);
    expect((await write('first')).exit_code).toBe(0);
    await sandbox.snapshot({ name: 'keeps-it' });
    // Until the limit is drawn anew, this fails with the error of a full disk, and with no other.
    await eventually('what was deleted can be written anew', async () => {
      const { exit_code: code, stderr } = await sandbox.exec(
        'rm -f /root/first; head -c 20M /dev/urandom > /root/second && sync /root/second',
      );
      if (code !== 0) expect(stderr).toContain('Disk quota exceeded');
      return code === 0;
    });
    for (let round = 0; round < 3; round += 1) {
      const more = await write('third');
      expect([more.exit_code, more.stderr]).toEqual([1, expect.stringContaining('Disk quota exceeded')]);
    }
    const { stdout } = await sandbox.exec('rm -f /root/third; sync; du -sk /root | cut -f1');
    expect(Number(stdout)).toBeLessThanOrEqual(diskMb * 1024);
    await sandbox.restore('keeps-it', { discard: true });
    expect((await sandbox.exec('ls /root/first')).exit_code).toBe(0);
  });
});
