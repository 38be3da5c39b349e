import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { KillPoint } from '../../packages/daemon/src/journal/kill-points.ts';

describeWithMemory('a daemon that is killed in the middle of work on memory', (driver) => {
  let daemon: RunningDaemon;
  /** Counts in memory alone, all the time, through every death of the daemon. */
  let subject: Sandbox;
  let job: number;
  let base: { readonly id: string; readonly reached: number };

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: driver.config });
    subject = await daemon.client.sandboxes.create({ name: 'subject' });
    job = (await subject.jobs.start('i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done')).id;
    await eventually('it counts', async () => (await reached(subject)) > 0);
    await subject.files.write('/root/file', 'old');
    const { id } = await subject.checkpoint({ name: 'base' });
    base = { id, reached: await reached(subject) };
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** The records of the daemon are the same for every driver: the other one dies where it has a part in it. */
  const points = <Point extends KillPoint>(...all: Point[]): Point[] =>
    driver.name === 'gvisor'
      ? all
      : all.filter((point) => /memory|machine|disk-taken|checkpointed/.test(point));

  async function reached(sandbox: Sandbox): Promise<number> {
    const found = (await sandbox.jobs.list()).find(({ id }) => id === job);
    return found?.running ? found.log_bytes : -1;
  }

  async function countsOn(sandbox: Sandbox, least: number): Promise<void> {
    const now = await reached(sandbox);
    expect(now).toBeGreaterThanOrEqual(least);
    await eventually('it counts on', async () => (await reached(sandbox)) > now);
  }

  const idsIn = (names: readonly string[]): string[] =>
    [...new Set(names.flatMap((name) => /sb_[0-9a-z]+/.exec(name)?.[0] ?? []))].sort();

  /** What the daemon says there is, and what the kernel and the pool show. */
  async function compare(): Promise<{ said: object; seen: object; settled: boolean }> {
    const sandboxes = await daemon.client.sandboxes.list();
    const snapshots = await daemon.client.snapshots.list();
    const all = sandboxes.map(({ id }) => id).sort();
    const running = sandboxes.filter(({ state }) => state === 'running').map(({ id }) => id);
    const pauses = sandboxes.filter(({ state }) => state === 'paused').map(({ id }) => `pause-${id}`);
    const { traces, home } = daemon;
    return {
      settled: sandboxes.every(({ state }) => state !== 'creating' && state !== 'destroying'),
      said: {
        machines: running.sort(),
        directories: running.sort(),
        ...(driver.name === 'gvisor' ? { runsc: running.sort(), namespaces: all } : { namespaces: [] }),
        disks: all,
        snapshots: [...pauses, ...snapshots.map(({ id }) => id)].sort(),
        memories: [...pauses, ...snapshots.filter((one) => one.has_memory).map(({ id }) => id)].sort(),
      },
      seen: {
        machines: traces.machines(),
        ...(driver.name === 'gvisor'
          ? {
              directories: readdirSync(join(home, 'gvisor/machines')).sort(),
              runsc: idsIn(readdirSync(join(home, 'gvisor/runsc'))),
            }
          : { directories: traces.runDirectories() }),
        namespaces: idsIn(traces.network()),
        disks: traces.disks(),
        snapshots: traces.snapshots(),
        memories: traces.memories(),
      },
    };
  }

  /** Recovery and what is removed out of sight go on behind the answers, so this waits until both say the same. */
  async function nothingUnknown(): Promise<void> {
    let last: Awaited<ReturnType<typeof compare>> | undefined;
    const agree = async () => {
      last = await compare();
      return last.settled && JSON.stringify(last.said) === JSON.stringify(last.seen);
    };
    await eventually('nothing unknown is left', agree).catch(() => {});
    expect(last?.seen).toEqual(last?.said);
    expect(last?.settled).toBe(true);
  }

  async function dieAt(point: KillPoint, call: () => Promise<unknown>): Promise<void> {
    daemon.armKillPoint(point);
    await expect(call()).rejects.toThrow();
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();
    await nothingUnknown();
  }

  test.each(
    points('snapshot.recorded', 'checkpoint.memory-written', 'checkpoint.disk-taken', 'snapshot.committed'),
  )('at %s of a checkpoint lets the source go on, with a whole checkpoint or none', async (point) => {
    const before = await reached(subject);
    await dieAt(point, () => subject.checkpoint({ name: 'taken' }));
    expect((await subject.inspect()).state).toBe('running');
    await countsOn(subject, before);
    const taken = (await subject.snapshots()).find(({ name }) => name === 'taken');
    expect(taken !== undefined).toBe(point === 'snapshot.committed');
    if (taken === undefined) return;
    const [twig] = (await daemon.client.snapshots.fork(taken.id, { name: 'of-taken' })).sandboxes;
    await countsOn(twig!, before);
    await twig!.destroy();
    await daemon.client.snapshots.delete(taken.id);
  });

  test.each(points('create.machine-started', 'create.network-applied', 'create.committed'))(
    'at %s of a fork with memory leaves the source as it was, and a whole fork or none',
    async (point) => {
      const before = await reached(subject);
      await dieAt(point, () => daemon.client.snapshots.fork(base.id, { name: 'twig' }));
      await countsOn(subject, before);
      const twig = (await daemon.client.sandboxes.list()).find(({ name }) => name === 'twig');
      expect(twig !== undefined).toBe(point === 'create.committed');
      if (twig === undefined) return;
      const fork = daemon.client.sandboxes.at(twig.id);
      await countsOn(fork, 1);
      expect((await fork.exec('hostname')).stdout.trim()).toBe('twig');
      await fork.destroy();
    },
  );

  test.each(points('restore.machine-stopped', 'restore.disk-replaced', 'restore.machine-started'))(
    'at %s of a restore brings back files and memory of the one instant',
    async (point) => {
      await subject.files.write('/root/file', 'new');
      await eventually('it is far from there', async () => (await reached(subject)) > base.reached * 2);
      await dieAt(point, () => subject.restore('base'));
      expect((await subject.inspect()).state).toBe('running');
      expect((await subject.exec('cat /root/file')).stdout).toBe('old');
      await countsOn(subject, 1);
    },
  );

  test.each(
    points(
      'pause.recorded',
      'pause.memory-written',
      'pause.checkpointed',
      'pause.machine-stopped',
      'pause.committed',
      'resume.recorded',
      'resume.machine-started',
      'resume.committed',
    ),
  )('at %s leaves it paused or running, and it counts on from where it was', async (point) => {
    const before = await reached(subject);
    if (point.startsWith('resume')) await subject.pause();
    await dieAt(point, () => (point.startsWith('resume') ? subject.resume() : subject.pause()));
    expect(['paused', 'running']).toContain((await subject.inspect()).state);
    await countsOn(subject, before);
    expect((await subject.inspect()).state).toBe('running');
  });

  test('a pause while a new daemon still sweeps keeps its memory, whatever an earlier one left', async () => {
    const before = await reached(subject);
    await daemon.kill('SIGKILL');
    mkdirSync(join(daemon.home, 'pool/memory', `pause-${subject.id}`));
    // Machines of nobody, each of which takes a moment to clear away.
    const run = join(daemon.home, 'run');
    for (let slot = 0; slot < 3000; slot += 1)
      mkdirSync(join(run, `sb_${String(slot).padStart(26, '0')}`), { recursive: true });
    await daemon.restart();
    await subject.pause();
    // A container that is paused has no place there either.
    await eventually('all is swept', async () => readdirSync(run).length === 0);
    await nothingUnknown();
    await countsOn(subject, before);
  });
});
