import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { PoolServer } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { childrenOf } from './children-of.ts';

const poolProgram = fileURLToPath(new URL('../../native/build/coppice-pool', import.meta.url));

const endIfThere = (pid: number): void => {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
};

describe('a helper of the daemon that dies', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'steady' });
    await sandbox.exec('echo kept > /root/kept');
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  const killOne = (program: string): number => {
    const [pid] = childrenOf(daemon.pid, program);
    if (pid === undefined) throw new Error(`the daemon runs no ${program}`);
    process.kill(pid, 'SIGKILL');
    return pid;
  };

  test('the pool helper is started again: snapshots, forks and deletions go on without a restart', async () => {
    const killed = killOne('coppice-pool');
    await eventually('another runs', () => {
      const [found] = childrenOf(daemon.pid, 'coppice-pool');
      return found !== undefined && found !== killed;
    });
    const { id } = await sandbox.snapshot();
    const { sandboxes } = await daemon.client.snapshots.fork(id);
    expect((await sandboxes[0]!.exec('cat /root/kept')).stdout).toBe('kept\n');
    await sandboxes[0]!.destroy();
    await daemon.client.snapshots.delete(id);
    expect((await daemon.client.health()).status).toBe('ok');
  });

  test('while the pool helper cannot come back, health is degraded, the doctor says why, and calls can be tried again', async () => {
    // Who holds the lock of the pool keeps every helper out.
    const lockFile = join(daemon.home, 'pool.lock');
    const holder = new PoolServer({ programPath: poolProgram, lockFile, lockWaitMs: 120_000 });
    try {
      let isHeld = false;
      const holding = holder.call('probe', '/').then(() => {
        isHeld = true;
      });
      // The daemon's next helper may have the lock before whoever waits for it.
      while (!isHeld) {
        for (const helper of childrenOf(daemon.pid, 'coppice-pool')) endIfThere(helper);
        await Promise.race([holding, sleep(100)]);
      }
      await eventually('health says it', async () => (await daemon.client.health()).status === 'degraded');
      expect((await daemon.client.health()).problems).toEqual(['pool helper']);
      const doctor = await daemon.client.doctor();
      expect(doctor.healthy).toBe(false);
      expect(doctor.findings).toContainEqual(
        expect.objectContaining({
          severity: 'error',
          check: 'pool helper',
          message: expect.stringContaining('helper'),
        }),
      );
      await expect(sandbox.snapshot()).rejects.toMatchObject({ code: 'unavailable' });
      expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
    } finally {
      await holder.close();
    }
    await eventually('it is well again', async () => (await daemon.client.health()).status === 'ok');
    const { id } = await sandbox.snapshot();
    await daemon.client.snapshots.delete(id);
  });

  test('the pool helper dies in the middle of work: each call is done or not done, and nothing unknown is left', async () => {
    const acceptable = (error: unknown): void => {
      if (!(error instanceof CoppiceError) || error.code !== 'unavailable') throw error;
    };
    const abort = new AbortController();
    const work = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        const taken = await sandbox.snapshot().catch(acceptable);
        const forked = await sandbox.fork().catch(acceptable);
        for (const fork of forked?.sandboxes ?? []) await fork.destroy().catch(acceptable);
        if (taken) await daemon.client.snapshots.delete(taken.id).catch(acceptable);
      }
    };
    const working = [work(), work()];
    for (let round = 0; round < 6; round += 1) {
      await sleep(Math.random() * 300);
      const killed = killOne('coppice-pool');
      await eventually('another runs', () => {
        const [found] = childrenOf(daemon.pid, 'coppice-pool');
        return found !== undefined && found !== killed;
      });
    }
    abort.abort();
    await Promise.all(working);
    for (const { id, name } of await daemon.client.sandboxes.list())
      if (name !== 'steady') await daemon.client.sandboxes.at(id).destroy();
    for (const { id } of await daemon.client.snapshots.list()) await daemon.client.snapshots.delete(id);
    const onPool = (): string[] => [...daemon.traces.disks(), ...daemon.traces.snapshots()];
    await eventually('nothing unknown is left', () => onPool().join() === sandbox.id, 30_000).catch(() => {});
    expect(onPool()).toEqual([sandbox.id]);
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
  });
});
