import { readdirSync, readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import type { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';

/** The first process of a sandbox, as this machine counts. */
const firstProcessOf = (sandboxId: string): number => {
  const found = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const isFirst = /^NSpid:.*\t1$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        return isFirst && readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(sandboxId);
      } catch {
        return false;
      }
    });
  if (found.length !== 1) throw new Error(`sandbox ${sandboxId} has ${found.length} first processes`);
  return Number(found[0]);
};

describe('a sandbox whose first process is held', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let pid: number;
  let held = false;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits: { agent_answer_s: 2 } } });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());
  beforeEach(async () => {
    sandbox = await daemon.client.sandboxes.create();
    await sandbox.files.write('/root/file', 'content');
    pid = firstProcessOf(sandbox.id);
  });
  afterEach(async () => {
    letGo();
    await sandbox.destroy();
  });

  const hold = (): void => {
    process.kill(pid, 'SIGSTOP');
    held = true;
  };
  const letGo = (): void => {
    if (held) process.kill(pid, 'SIGCONT');
    held = false;
  };
  const failure = async (work: Promise<unknown>): Promise<CoppiceError> =>
    work.then(
      () => expect.fail('it was answered'),
      (error: CoppiceError) => error,
    );
  const drained = async (chunks: AsyncIterable<unknown>): Promise<void> => {
    for await (const _ of chunks);
  };

  test('keeps no command beyond its timeout, whether that ran before or was to start', async () => {
    await using patient = await RunningDaemon.start();
    await using box = await patient.client.sandboxes.create();
    const refused = failure(box.exec('echo before; touch /tmp/runs; sleep 1000', { timeout_ms: 10_000 }));
    await eventually('it runs', async () => (await box.exec('test -e /tmp/runs')).exit_code === 0);
    process.kill(firstProcessOf(box.id), 'SIGSTOP');
    const stream = await box.execStream('true', { timeout_ms: 1000 });
    const later = [failure(box.exec('true', { timeout_ms: 1000 })), failure(drained(stream))];
    const { code, message, hint, details } = await refused;
    expect(code).toBe('timeout');
    expect(message).toMatch(/did not end a command that had 10 s/);
    expect(hint).toContain('coppice stop --grace 0');
    expect(details?.stdout).toBe('before\n');
    for (const failed of later) expect((await failed).code).toBe('timeout');
  });

  test('ends every call, and each says what to do', async () => {
    const { files, jobs, terminals } = sandbox;
    const job = await jobs.start('sleep 1000');
    const terminal = await terminals.open();
    const running = sandbox.exec('touch /tmp/runs; sleep 1000');
    const attached = await terminals.attach(terminal.id);
    const abort = new AbortController();
    const { signal } = abort;
    const underWay = [
      ['a command that runs', failure(running)],
      ['a terminal', failure(drained(attached))],
      ['a wait for output', failure(jobs.read(job.id, { cursor: 10_000_000, wait_ms: 60_000 }))],
    ] as const;
    await eventually('it runs', async () => (await sandbox.exec('test -e /tmp/runs')).exit_code === 0);
    hold();
    const large = Readable.from(Array.from({ length: 64 }, () => Buffer.alloc(1 << 20)));
    const calls: Readonly<Record<string, () => Promise<unknown>>> = {
      exec: () => sandbox.exec('true'),
      'exec with input': () => sandbox.exec('cat', { stdin: 'x'.repeat(1_000_000) }),
      'jobs.start': () => jobs.start('true'),
      'jobs.list': () => jobs.list(),
      'jobs.kill': () => jobs.kill(job.id),
      'terminals.open': () => terminals.open(),
      'terminals.attach': async () => drained(await terminals.attach(terminal.id)),
      'files.read': () => files.read('/root/file'),
      'files.write': () => files.write('/root/other', 'x'),
      'files.write of much': () => files.write('/root/large', large),
      'files.edit': () => files.edit('/root/file', 'content', 'other'),
      'files.list': () => files.list('/root'),
      'files.stat': () => files.stat('/root/file'),
      'files.makeDirectory': () => files.makeDirectory('/root/directory'),
      'files.move': () => files.move('/root/file', '/root/moved'),
      'files.remove': () => files.remove('/root', { recursive: true }),
      'files.watch': () => drained(files.watch('/root', { signal })),
    };
    const ended = Object.entries(calls).map(([name, call]) => [name, failure(call())] as const);
    for (const [name, failed] of [...underWay, ...ended]) {
      const { code, hint } = await failed;
      expect(['timeout', 'unavailable'], name).toContain(code);
      expect(hint, name).toMatch(/stop/i);
    }
    abort.abort();
    letGo();
    await eventually('it answers again', async () => {
      const answer = await sandbox.exec('echo again').catch(() => undefined);
      return answer?.stdout === 'again\n';
    });
    // What was asked of it meanwhile and given up is not done behind the caller's back for good.
    await eventually('no command is left', async () => (await sandbox.exec('pidof cat')).exit_code !== 0);
  });

  test('is stopped, and started again, as any other', async () => {
    hold();
    await sandbox.stop({ grace_s: 0.1 });
    held = false;
    await sandbox.start();
    expect((await sandbox.exec('cat /root/file')).stdout).toBe('content');
  });

  test('is destroyed as any other while calls wait for it', async () => {
    const waiting = failure(sandbox.exec('sleep 1000'));
    hold();
    const other = await daemon.client.sandboxes.create();
    await sandbox.destroy();
    held = false;
    expect(['unavailable', 'timeout', 'not_found']).toContain((await waiting).code);
    sandbox = other;
    pid = firstProcessOf(other.id);
  });
});
