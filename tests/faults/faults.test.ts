import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

describe('a fault in one sandbox', () => {
  let daemon: RunningDaemon;
  let neighbour: Sandbox;
  let counter: number;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    neighbour = await daemon.client.sandboxes.create({ name: 'neighbour' });
    counter = (await neighbour.jobs.start('while :; do echo tick; sleep 0.01; done')).id;
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  async function counted(): Promise<number> {
    const found = (await neighbour.jobs.list()).find(({ id }) => id === counter);
    return found?.running ? found.log_bytes : -1;
  }

  /** The neighbour computes, writes and answers as if nothing had happened. */
  async function neighbourNoticesNothing(before: number): Promise<void> {
    await eventually('the neighbour counts on', async () => (await counted()) > before);
    const { stdout } = await neighbour.exec('echo fine > /root/f && cat /root/f');
    expect(stdout).toBe('fine\n');
  }

  const answers = async (sandbox: Sandbox): Promise<void> =>
    expect((await sandbox.exec('echo here')).stdout).toBe('here\n');

  test('a full disk is an error to who writes, and room again once files are deleted', async () => {
    const before = await counted();
    await using sandbox = await daemon.client.sandboxes.create({ disk_mb: 32 });
    const full = await sandbox.exec('head -c 100000000 /dev/urandom > /root/big && sync /root/big');
    expect(full.exit_code).not.toBe(0);
    expect(full.stderr).toMatch(/quota exceeded|No space left/i);
    await answers(sandbox);
    await neighbourNoticesNothing(before);
    await eventually('deleting makes room', async () => {
      const again = await sandbox.exec(
        'rm -f /root/*; echo small > /root/small && sync /root/small && cat /root/small',
      );
      return again.stdout === 'small\n';
    });
  });

  test('out of memory inside kills there and only there, is counted, and the sandbox answers on', async () => {
    const before = await counted();
    await using sandbox = await daemon.client.sandboxes.create({ memory_mb: 64 });
    const greedy = await sandbox.exec([
      'bash',
      '-c',
      'x=$(head -c 300000000 /dev/zero | tr "\\0" a); echo "$x" | wc -c',
    ]);
    expect(greedy.stdout).not.toBe('300000001\n');
    await answers(sandbox);
    expect((await sandbox.inspect()).usage?.oom_kills).toBeGreaterThan(0);
    expect((await sandbox.inspect()).state).toBe('running');
    await neighbourNoticesNothing(before);
  });

  test('without a process to spare an exec says so and does not hang; stop and start bring it back', async () => {
    const before = await counted();
    await using sandbox = await daemon.client.sandboxes.create({ pids: 16 });
    await sandbox.jobs.start('while :; do sleep 100000 & done 2>/dev/null');
    await eventually('its processes are used up', async () => {
      const outcome = await sandbox.exec('true').then(
        ({ exit_code: code }) => code,
        (error: unknown) => (error instanceof CoppiceError ? error.code : 'hung'),
      );
      return outcome !== 0;
    });
    await neighbourNoticesNothing(before);
    await sandbox.stop({ grace_s: 0 });
    await sandbox.start();
    await answers(sandbox);
  });

  test('a fork bomb stays inside and ends with its sandbox', async () => {
    const before = await counted();
    const sandbox = await daemon.client.sandboxes.create({ pids: 64 });
    await sandbox.jobs.start(['bash', '-c', 'bomb() { bomb | bomb & }; bomb; sleep 100000']);
    await eventually('it has spread', async () => ((await sandbox.inspect()).usage?.pids ?? 0) > 16);
    await neighbourNoticesNothing(before);
    await sandbox.destroy();
    expect(daemon.traces.machines()).toEqual([neighbour.id]);
  });

  test('when PID 1 is killed from outside the sandbox has failed, says why, and starts again with its disk', async () => {
    const before = await counted();
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.exec('echo kept > /root/kept');
    const record = JSON.parse(readFileSync(join(daemon.home, 'run', sandbox.id, 'machine.json'), 'utf8'));
    process.kill(record.init.pid, 'SIGKILL');
    await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
    const failed = await sandbox.inspect();
    expect(failed.failure).toMatch(/first process/);
    await expect(sandbox.exec('true')).rejects.toMatchObject({ code: 'wrong_state' });
    expect(daemon.traces.machines()).toEqual([neighbour.id]);
    await neighbourNoticesNothing(before);
    await sandbox.start();
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
  });
});
