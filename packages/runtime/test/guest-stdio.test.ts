import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Duplex, PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GuestClient, GuestLink } from '../src/index.ts';
import { confinedAgent, run, until } from './guest/start-agent.ts';

let agent: ChildProcess;
let ended: Promise<number | null>;
beforeEach(() => {
  const [program, ...args] = confinedAgent({ args: ['--stdio'] });
  agent = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit', 'pipe'] });
  ended = new Promise((settle) => agent.once('exit', settle));
});
afterEach(async () => {
  agent.kill('SIGKILL');
  await ended;
});

/** What a relay does: a session that comes and goes on a byte stream that stays. */
const join = async (): Promise<GuestClient> => {
  const fromAgent = new PassThrough();
  const onData = (chunk: Buffer) => fromAgent.write(chunk);
  agent.stdout!.on('data', onData);
  const stream = new Duplex({
    read() {},
    write: (chunk, _, done) => agent.stdin!.write(chunk, () => done()),
    destroy: (error, done) => {
      agent.stdout!.off('data', onData);
      done(error);
    },
  });
  fromAgent.on('data', (chunk: Buffer) => stream.push(chunk));
  return new GuestClient(await GuestLink.open(stream, { unaligned: true }));
};

describe('the agent on a byte stream that outlives its sessions', () => {
  it('ends the foreground of the session before, and keeps its jobs', async () => {
    const first = await join();
    expect((await run(first, ['echo', 'first'])).stdout).toBe('first\n');
    const foreground = await first.exec({ argv: ['sleep', '1000'] });
    const loud = await first.exec({ argv: ['cat', '/dev/zero'] });
    const job = await first.startJob({ argv: ['sleep', '1000'] });
    first.close();
    const second = await join();
    await until(
      'the end of the foreground',
      () => !existsSync(`/proc/${foreground.pid}`) && !existsSync(`/proc/${loud.pid}`),
    );
    expect((await second.listJobs()).find(({ id }) => id === job.id)).toMatchObject({ running: true });
    expect((await run(second, ['echo', 'second'])).stdout).toBe('second\n');
    await second.signalJob(job.id, 9);
    second.close();
  });

  it('finds the next greeting behind garbage', async () => {
    const first = await join();
    first.close();
    agent.stdin!.write(Buffer.alloc(5000, 0xee));
    const second = await join();
    expect((await run(second, ['echo', 'again'])).stdout).toBe('again\n');
    second.close();
  });

  it('ends when it is asked to', async () => {
    const guest = await join();
    const shutdown = guest.shutdown(0).catch(() => {});
    expect(await ended).toBe(0);
    guest.close();
    await shutdown;
  });
});
