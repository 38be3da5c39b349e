import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectGuest, type Guest, type JobLog } from '../src/index.ts';
import { type Agent, run, shell, startAgent, until } from './guest/start-agent.ts';

let agent: Agent;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());

const text = (log: JobLog) => log.chunks.map(({ stream, data }) => `${stream}:${data}`).join('');

/** Follows a job to its end. */
const follow = async (guest: Guest, id: number): Promise<{ bytes: number; last: JobLog }> => {
  let cursor = 0;
  let bytes = 0;
  for (;;) {
    const log = await guest.readJob(id, { cursor, waitMs: 60_000, maxBytes: 1 << 20 });
    for (const chunk of log.chunks) bytes += chunk.data.length;
    if (!log.running && log.chunks.length === 0) return { bytes, last: log };
    cursor = log.cursor;
  }
};

describe('a background job', () => {
  it('is read from a cursor, each stream by its name and in order', async () => {
    const gate = join(agent.dir, 'gate');
    const script = `echo one; echo two >&2; while [ ! -e ${gate} ]; do sleep 0.02; done; echo three; exit 9`;
    const job = await agent.guest.startJob({ argv: shell(script), keepAwake: true });
    expect(job).toMatchObject({ running: true, exit: null, keepAwake: true, argv: ['sh', '-c', script] });
    await until('both lines', async () => (await agent.guest.readJob(job.id, {})).cursor === 8);
    const first = await agent.guest.readJob(job.id, { cursor: 0 });
    expect(first.chunks.map((chunk) => chunk.stream).sort()).toEqual(['stderr', 'stdout']);
    expect(first).toMatchObject({ cursor: 8, droppedBytes: 0, running: true, exit: null });
    const waiting = agent.guest.readJob(job.id, { cursor: first.cursor, waitMs: 60_000 });
    await run(agent.guest, ['touch', gate]);
    expect(text(await waiting)).toBe('stdout:three\n');
    const { last } = await follow(agent.guest, job.id);
    expect(last.exit).toEqual({ code: 9, signal: null, timedOut: false });
    expect(text(await agent.guest.readJob(job.id, { cursor: 5, maxBytes: 4 }))).toMatch(/:\w{0,3}/);
  });

  it('answers a wait when nothing came, and one that is behind the end at once', async () => {
    const job = await agent.guest.startJob({ argv: ['sleep', '1000'] });
    expect(await agent.guest.readJob(job.id, { waitMs: 1 })).toMatchObject({
      chunks: [],
      cursor: 0,
      running: true,
    });
    expect(await agent.guest.readJob(job.id, { cursor: 10_000 })).toMatchObject({ chunks: [], cursor: 0 });
    await agent.guest.signalJob(job.id, 9);
    const { last } = await follow(agent.guest, job.id);
    expect(last.exit).toEqual({ code: null, signal: 9, timedOut: false });
    await expect(agent.guest.signalJob(job.id, 9)).rejects.toMatchObject({ code: 'wrong_state' });
  });

  it('keeps the last 4 MiB of its log and says how much was dropped', async () => {
    const job = await agent.guest.startJob({ argv: shell('head -c 10000000 /dev/zero; echo end') });
    await until('the end', async () => !(await agent.guest.readJob(job.id, {})).running);
    const info = (await agent.guest.listJobs()).find(({ id }) => id === job.id)!;
    expect(info.logBytes).toBe(10_000_004);
    expect(info.logBytes - info.logStart).toBeLessThanOrEqual(4 << 20);
    expect(info.logBytes - info.logStart).toBeGreaterThan(3 << 20);
    const log = await agent.guest.readJob(job.id, { cursor: 100 });
    expect(log.droppedBytes).toBe(info.logStart - 100);
    const tail = await agent.guest.readJob(job.id, { cursor: info.logBytes - 4 });
    expect(text(tail)).toBe('stdout:end\n');
    const { bytes } = await follow(agent.guest, job.id);
    expect(bytes).toBe(info.logBytes - info.logStart);
  });

  it('lives on when its connection goes, and its timeout holds', async () => {
    const other = await connectGuest(agent.socketPath);
    const gate = join(agent.dir, 'second-gate');
    const job = await other.startJob({
      argv: shell(`while [ ! -e ${gate} ]; do sleep 0.02; done; echo survived`),
    });
    other.close();
    await other.closed;
    await run(agent.guest, ['touch', gate]);
    expect((await follow(agent.guest, job.id)).last.exit).toMatchObject({ code: 0 });
    expect(text(await agent.guest.readJob(job.id, {}))).toBe('stdout:survived\n');

    const limited = await agent.guest.startJob({ argv: ['sleep', '1000'], timeoutMs: 50 });
    expect((await follow(agent.guest, limited.id)).last.exit).toEqual({
      code: null,
      signal: 9,
      timedOut: true,
    });
  });

  it('still logs what its children write after it has ended', async () => {
    const gate = join(agent.dir, 'third-gate');
    const job = await agent.guest.startJob({
      argv: shell(`(while [ ! -e ${gate} ]; do sleep 0.02; done; echo late) &`),
    });
    await until('the end', async () => !(await agent.guest.readJob(job.id, {})).running);
    await run(agent.guest, ['touch', gate]);
    await until('the late line', async () => text(await agent.guest.readJob(job.id, {})) === 'stdout:late\n');
  });

  it('stays listed after its end, as one of the last 64', async () => {
    const ids: number[] = [];
    for (let i = 0; i < 70; i++) ids.push((await agent.guest.startJob({ argv: ['true'] })).id);
    for (const id of ids.slice(-64))
      expect((await follow(agent.guest, id)).last.exit).toMatchObject({ code: 0 });
    const listed = new Set((await agent.guest.listJobs()).map(({ id }) => id));
    for (const id of ids.slice(-60)) expect(listed.has(id)).toBe(true);
    expect(listed.size).toBeLessThanOrEqual(65);
  });

  it('that never was is not found, and a program that is not there starts none', async () => {
    await expect(agent.guest.readJob(999_999, {})).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.signalJob(999_999, 15)).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.startJob({ argv: ['no-such-program'] })).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(agent.guest.readJob(1, { cursor: -1 })).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  it('takes input by its place: what comes twice is left out, what comes too early is refused', async () => {
    const job = await agent.guest.startJob({ argv: ['cat'], takesInput: true });
    expect(await agent.guest.writeJob(job.id, 0, Buffer.from('one\n'))).toBe(4);
    expect(await agent.guest.writeJob(job.id, 0, Buffer.from('one\ntwo\n'))).toBe(8);
    await expect(agent.guest.writeJob(job.id, 9, Buffer.from('x'))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await until('it came out again', async () => {
      return text(await agent.guest.readJob(job.id, {})) === 'stdout:one\ntwo\n';
    });
    await agent.guest.signalJob(job.id, 9);
    await until('the end', async () => !(await agent.guest.readJob(job.id, {})).running);
    await expect(agent.guest.writeJob(job.id, 8, Buffer.from('x'))).rejects.toMatchObject({
      code: 'wrong_state',
    });
    const without = await agent.guest.startJob({ argv: ['sleep', '1000'] });
    await expect(agent.guest.writeJob(without.id, 0, Buffer.from('x'))).rejects.toMatchObject({
      code: 'wrong_state',
    });
    await agent.guest.signalJob(without.id, 9);
  });

  it('takes no more input than there is room for, and the rest once it was read', async () => {
    const gate = join(agent.dir, 'input-gate');
    const script = `while [ ! -e ${gate} ]; do sleep 0.02; done; wc -c; exit`;
    const job = await agent.guest.startJob({ argv: shell(script), takesInput: true });
    const bytes = Buffer.alloc(3 << 20, 'x');
    const first = await agent.guest.writeJob(job.id, 0, bytes);
    expect(first).toBeLessThan(bytes.length);
    await run(agent.guest, ['touch', gate]);
    let end = first;
    await until('all of it is taken', async () => {
      end = await agent.guest.writeJob(job.id, end, bytes.subarray(end));
      return end === bytes.length;
    });
    await agent.guest.signalJob(job.id, 15);
  });

  it('is swept: what it left running ends, also what has lost its parent, but not what is spared', async () => {
    const marker = `SWEPT=${Math.random()}`;
    const script = `sleep 1001 & echo spared $!; (setsid sleep 1002 &); sleep 1003 & wait`;
    const [name, value] = marker.split('=') as [string, string];
    const job = await agent.guest.startJob({ argv: shell(script), env: { [name]: value } });
    let spared = 0;
    await until('it has started all', async () => {
      spared = Number(/spared (\d+)/.exec(text(await agent.guest.readJob(job.id, {})))?.[1]);
      return (await agent.guest.sweepJob(job.id, { marker })).length === 3;
    });
    expect(await agent.guest.sweepJob(job.id, { marker, spared: [spared] })).toHaveLength(2);
    expect(await agent.guest.sweepJob(job.id, { marker, spared: [spared], signal: 9 })).toHaveLength(2);
    expect(await agent.guest.sweepJob(job.id, { marker })).toEqual([spared]);
    expect((await agent.guest.listJobs()).find(({ id }) => id === job.id)?.running).toBe(true);
    expect(await agent.guest.sweepJob(job.id, { marker, signal: 9 })).toEqual([spared]);
    await until('the end', async () => !(await agent.guest.readJob(job.id, {})).running);
    await expect(agent.guest.sweepJob(job.id, { marker })).rejects.toMatchObject({ code: 'wrong_state' });
  });
});
