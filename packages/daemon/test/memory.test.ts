import { execFile } from 'node:child_process';
import { existsSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon, SmallDisk } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const runProgram = promisify(execFile);
const capabilitiesOfRoot = 'sed -n s/^CapEff:.//p /proc/self/status';
const run = async (sandbox: Sandbox, command: string): Promise<string> => {
  const { stdout, stderr, exit_code: code } = await sandbox.exec(command);
  if (code !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout.trim();
};

describeWithMemory('memory', (driver) => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: driver.config });
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** Counts in memory alone. Returns the number of its job. */
  async function counting(sandbox: Sandbox, options: { keep_awake?: boolean } = {}): Promise<number> {
    const { id } = await sandbox.jobs.start(
      'i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done',
      options,
    );
    await eventually('it counts', async () => (await reached(sandbox, id)) > 0);
    return id;
  }

  /** How far it came; -1 when it no longer runs. Both the counter and its log live in memory. */
  async function reached(sandbox: Sandbox, job: number): Promise<number> {
    const found = (await sandbox.jobs.list()).find(({ id }) => id === job);
    return found?.running ? found.log_bytes : -1;
  }

  async function countsOn(sandbox: Sandbox, job: number, before: number): Promise<void> {
    expect(await reached(sandbox, job)).toBeGreaterThanOrEqual(before);
    await eventually('it counts on', async () => (await reached(sandbox, job)) > before);
  }

  test('a checkpoint lets the source go on, and forks of it go on from the same number, each by itself', async () => {
    await using source = await daemon.client.sandboxes.create({
      name: 'source',
      network: { allow: ['198.51.100.1'] },
    });
    const job = await counting(source);
    const before = await reached(source, job);
    const checkpoint = await source.checkpoint({ name: 'live' });
    expect(checkpoint).toMatchObject({ has_memory: true, driver: driver.name });
    expect(checkpoint.memory_bytes).toBeGreaterThan(0);
    await countsOn(source, job, before);
    const { sandboxes, failures } = await daemon.client.snapshots.fork(checkpoint.id, {
      count: 2,
      name_prefix: 'twig',
    });
    expect(failures).toEqual([]);
    for (const fork of sandboxes) {
      expect(await run(fork, 'hostname')).toBe(fork.name);
      // Only the agent may do that.
      expect((await fork.exec('hostname mine')).exit_code).not.toBe(0);
      expect(BigInt(`0x${await run(fork, capabilitiesOfRoot)}`) & (1n << 21n)).toBe(0n);
      await countsOn(fork, job, before);
      await fork.destroy();
    }
  });

  test('checkpoints of forks share the pages that they have in common, and a fork of them goes on', async () => {
    await using source = await daemon.client.sandboxes.create();
    const { id: held } = await source.jobs.start(
      'dd if=/dev/urandom bs=24M count=1 iflag=fullblock status=none | { head -c 1 >/root/full; sleep 10000; }',
    );
    await eventually(
      'it holds memory',
      async () => (await source.exec('test -s /root/full')).exit_code === 0,
    );
    const first = await source.checkpoint();
    const pool = join(daemon.home, 'pool');
    const poolBytes = async (): Promise<number> => {
      await runProgram('sync', ['--file-system', pool]);
      const { bsize, blocks, bfree } = statfsSync(pool);
      return (blocks - bfree) * bsize;
    };
    const usedBytes = await poolBytes();
    const { sandboxes } = await daemon.client.snapshots.fork(first.id, { count: 3 });
    const taken = await Promise.all(sandboxes.map((fork) => fork.checkpoint()));
    const counted = async () =>
      Promise.all(taken.map(async ({ id }) => (await daemon.client.snapshots.get(id)).memory_used_bytes));
    await eventually('they are shared', async () => (await counted()).every((bytes) => bytes !== null));
    for (const { id, memory_bytes: bytes } of taken) {
      const { memory_used_bytes: ownBytes } = await daemon.client.snapshots.get(id);
      expect(ownBytes).toBeLessThan(bytes! / 2);
    }
    // Three times what one holds were written, and less than one of them takes room.
    expect((await poolBytes()) - usedBytes).toBeLessThan(first.memory_bytes!);
    const [again] = (await daemon.client.snapshots.fork(taken[0]!.id)).sandboxes;
    expect(await again!.jobs.get(held)).toMatchObject({ running: true });
    for (const fork of [again!, ...sandboxes]) await fork.destroy();
  });

  test('a full disk in the middle of a checkpoint or a pause is said, the source goes on, and nothing is left', async () => {
    using disk = SmallDisk.make(1536);
    await using small = await RunningDaemon.start({ config: driver.config, below: disk.directory });
    await using source = await small.client.sandboxes.create();
    await source.jobs.start(
      'dd if=/dev/urandom bs=96M count=1 iflag=fullblock status=none | { head -c 1 >/root/full; sleep 10000; }',
    );
    await eventually(
      'it holds memory',
      async () => (await source.exec('test -s /root/full')).exit_code === 0,
    );
    const job = await counting(source);
    const before = await reached(source, job);
    const pool = join(small.home, 'pool');
    const freeBytes = (): number => statfsSync(pool).bavail * statfsSync(pool).bsize;
    // There is room to begin with, and not for all of it.
    await eventually('the pool is nearly full', () => {
      if (freeBytes() < 80 * 1024 ** 2) return true;
      disk.fill(8 * 1024 ** 2);
      return false;
    });
    await expect(source.checkpoint()).rejects.toMatchObject({ code: 'no_space' });
    await countsOn(source, job, before);
    await expect(source.pause()).rejects.toMatchObject({ code: 'no_space' });
    await countsOn(source, job, before);
    expect((await source.inspect()).state).toBe('running');
    expect(await source.snapshots()).toEqual([]);
    await eventually('nothing is left', () => small.traces.memories().length === 0);
    disk.makeRoom();
    await eventually('there is room again', async () => (await small.client.health()).status === 'ok');
    expect(await source.checkpoint()).toMatchObject({ has_memory: true });
  });

  test('a watch of files goes on through a checkpoint, and a fork is made of one', async () => {
    await using source = await daemon.client.sandboxes.create();
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { path } of source.files.watch('/root', { signal: stop.signal })) seen.push(path);
    })().catch(() => {});
    const sees = (name: string) =>
      eventually(`${name} is seen`, async () => {
        await run(source, `touch /root/${name}`);
        return seen.includes(`/root/${name}`);
      });
    await sees('before');
    const { id } = await source.checkpoint();
    await sees('after');
    const [fork] = (await daemon.client.snapshots.fork(id)).sandboxes;
    expect(await run(fork!, 'ls /root')).toBe('before');
    await fork!.destroy();
    stop.abort();
    await watching;
  });

  test('a restore to a checkpoint brings the processes back to where they were', async () => {
    await using source = await daemon.client.sandboxes.create();
    await run(source, 'echo then > /root/file');
    const job = await counting(source);
    const before = await reached(source, job);
    await source.checkpoint({ name: 'then' });
    await run(source, 'echo now > /root/file');
    expect(await source.restore('then')).toMatchObject({ with_memory: true, state: 'running' });
    expect(await run(source, 'cat /root/file')).toBe('then');
    await countsOn(source, job, before);
  });

  test('a paused sandbox has no process, survives a restart of the daemon, and a call wakes it', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    const job = await counting(sandbox);
    for (let cycle = 0; cycle < 3; cycle += 1) {
      const before = await reached(sandbox, job);
      await sandbox.pause();
      await eventually('no process of it is left', () => daemon.traces.machines().length === 0);
      await daemon.kill();
      await daemon.restart();
      expect((await sandbox.inspect()).state).toBe('paused');
      await countsOn(sandbox, job, before);
    }
    await eventually(
      'what the pause kept is gone',
      () => !daemon.traces.memories().some((id) => id.startsWith('pause-')),
    );
  });

  test('an idle sandbox falls asleep and wakes on the next call', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ idle_timeout_s: 1 });
    const job = await counting(sandbox, { keep_awake: false });
    const before = await reached(sandbox, job);
    await eventually('it sleeps', async () => {
      const [found] = await daemon.client.sandboxes.list({ state: 'paused' });
      return found?.id === sandbox.id;
    });
    await countsOn(sandbox, job, before);
  });

  test('a job that runs keeps its sandbox awake, silent too and through a restart, unless it was told otherwise', async () => {
    await using worker = await daemon.client.sandboxes.create({ name: 'worker', idle_timeout_s: 2 });
    await using sleeper = await daemon.client.sandboxes.create({ name: 'sleeper', idle_timeout_s: 2 });
    const { id: job } = await worker.jobs.start('sleep 1000');
    await sleeper.jobs.start('while :; do echo here; sleep 0.05; done', { keep_awake: false });
    const stateOf = async ({ id }: Sandbox) =>
      (await daemon.client.sandboxes.list()).find((sandbox) => sandbox.id === id)?.state;
    await daemon.kill();
    await daemon.restart();
    await eventually('the other sleeps', async () => (await stateOf(sleeper)) === 'paused');
    expect(await stateOf(worker)).toBe('running');
    await worker.jobs.kill(job);
    await eventually(
      'so does the worker, once its job ended',
      async () => (await stateOf(worker)) === 'paused',
    );
  });
});

describe('a default sandbox', () => {
  test('can be checkpointed with the CRIU that set-up brought', async ({ skip }) => {
    if (!existsSync(join(import.meta.dirname, '../../../.tools/criu/criu')))
      skip('set-up could not get CRIU 4');
    await using daemon = await RunningDaemon.start({ config: { criu: null } });
    await using sandbox = await daemon.client.sandboxes.create();
    expect(sandbox.memoryNotice).toBeUndefined();
    expect((await sandbox.checkpoint()).has_memory).toBe(true);
  });

  test('says at once where its memory cannot be kept, and how it could be', async () => {
    await using daemon = await RunningDaemon.start();
    await eventually('the drivers were asked', async () => {
      await using sandbox = await daemon.client.sandboxes.create();
      return sandbox.memoryNotice !== undefined;
    });
    await using sandbox = await daemon.client.sandboxes.create();
    expect(sandbox.memoryNotice).toMatch(
      /^checkpoint, pause and sleep need memory .* container cannot here: CRIU/,
    );
    expect(sandbox.memoryNotice).toMatch(/--driver gvisor|coppice doctor/);
    await expect(sandbox.checkpoint()).rejects.toMatchObject({ code: 'unsupported' });
  });
});
