import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
  work.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
  );

const run = async (sandbox: Sandbox, command: string): Promise<string> => {
  const { stdout, stderr, exit_code: code } = await sandbox.exec(command);
  if (code !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout.trim();
};

describe('a fork that is hard to merge', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  async function pair(diskMb = 200): Promise<{ source: Sandbox; fork: Sandbox } & AsyncDisposable> {
    const source = await daemon.client.sandboxes.create({ disk_mb: diskMb });
    await run(source, 'echo mine > /root/mine; echo old > /root/changed');
    const fork = (await source.fork()).sandboxes[0]!;
    return {
      source,
      fork,
      [Symbol.asyncDispose]: async () => {
        await fork.destroy();
        await source.destroy();
      },
    };
  }

  /** 4 TiB with a few bytes at both ends, and one that was there and grew a hole. */
  const makeHuge =
    'cd /root; printf begin > huge; printf end | dd of=huge bs=1 seek=4T conv=notrunc status=none; dd of=changed bs=1 count=0 seek=1T status=none';
  const lookAtHuge =
    'cd /root; stat -c %s huge changed; head -c 5 huge; tail -c 3 huge; head -c 4 changed; du -k huge changed | cut -f1';

  test.each(['running', 'stopped'])('holds files of holes: they stay holes in a %s target', async (state) => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, makeHuge);
    if (state === 'stopped') await source.stop({ grace_s: 0 });
    expect(await source.merge(fork)).toMatchObject({ applied: true, conflicts: [] });
    if (state === 'stopped') await source.start();
    const seen = (await run(source, lookAtHuge)).split('\n');
    expect(seen.slice(0, 3)).toEqual(['4398046511107', '1099511627776', 'beginendold']);
    expect(Number(seen[3])).toBeLessThan(1000);
    expect(Number(seen[4])).toBeLessThan(1000);
  });

  test.each(['running', 'stopped'])(
    'does not fit on the disk: a %s target is left alone, and what is missing is said',
    async (state) => {
      await using both = await pair(128);
      const { source, fork } = both;
      await run(source, 'head -c 60M /dev/urandom > /root/big');
      await run(fork, 'head -c 90M /dev/urandom > /root/bigger; rm /root/mine');
      if (state === 'stopped') await source.stop({ grace_s: 0 });
      const before = (await source.snapshots()).length;
      const refused = await failure(source.merge(fork));
      expect(refused).toMatchObject({
        code: 'no_space',
        details: { needed_bytes: expect.any(Number), left_bytes: expect.any(Number) },
      });
      expect(Number(refused.details?.needed_bytes)).toBeGreaterThanOrEqual(90 * 1024 ** 2);
      expect(Number(refused.details?.left_bytes)).toBeLessThan(70 * 1024 ** 2);
      expect((await source.snapshots()).length).toBe(before);
      if (state === 'stopped') await source.start();
      expect(await run(source, 'ls /root')).toBe('big\nchanged\nmine');
      // What was deleted counts for nothing, also where nobody has looked at the disk since.
      await run(source, 'rm /root/big; sync');
      expect(await source.merge(fork)).toMatchObject({ applied: true });
    },
  );

  describe('while it is being merged', () => {
    afterEach(() => daemon.disarm());

    /** A merge into the source of which a part is written, and which goes no further by itself. */
    async function heldMerge(
      { source, fork }: { source: Sandbox; fork: Sandbox },
      signal?: AbortSignal,
    ): Promise<{ refusal: Promise<CoppiceError> }> {
      await run(fork, 'cd /root; echo new > changed; echo first > a; echo second > b; rm mine');
      daemon.holdAt('merge.applying');
      const refusal = failure(source.merge(fork, signal === undefined ? {} : { signal }));
      await eventually(
        'a part of it is written',
        async () => (await source.exec('ls /root/mine')).exit_code !== 0,
      );
      return { refusal };
    }

    async function isAsBefore(source: Sandbox): Promise<void> {
      expect(await run(source, 'cd /root; ls; cat changed mine')).toBe('changed\nmine\nold\nmine');
    }

    /** Root inside can hold up the agent; so can whoever took it over. */
    async function stopAgent({ id }: Sandbox): Promise<void> {
      const record = JSON.parse(readFileSync(join(daemon.home, 'run', id, 'machine.json'), 'utf8'));
      process.kill(record.init.pid, 'SIGSTOP');
    }

    test('stopping the target gives the merge up and takes it back first', async () => {
      await using both = await pair();
      const { refusal } = await heldMerge(both);
      await both.source.stop({ grace_s: 0 });
      expect((await both.source.inspect()).state).toBe('stopped');
      expect(await refusal).toMatchObject({ code: 'cancelled' });
      await both.source.start();
      await isAsBefore(both.source);
    });

    test('stopping a target whose agent answers nothing does the same', async () => {
      await using both = await pair();
      const { refusal } = await heldMerge(both);
      await stopAgent(both.source);
      daemon.disarm();
      await both.source.stop({ grace_s: 0 });
      expect(await refusal).toMatchObject({ code: 'cancelled' });
      await both.source.start();
      await isAsBefore(both.source);
    });

    test('destroying the target does not wait for it', async () => {
      await using both = await pair();
      const target = (await both.source.fork()).sandboxes[0]!;
      const { refusal } = await heldMerge({ source: target, fork: both.fork });
      await stopAgent(target);
      await target.destroy();
      expect(await refusal).toMatchObject({ code: 'cancelled' });
      expect(await failure(target.inspect())).toMatchObject({ code: 'not_found' });
    });

    test('a caller who goes away ends it, and it is taken back', async () => {
      await using both = await pair();
      const caller = new AbortController();
      const { refusal } = await heldMerge(both, caller.signal);
      caller.abort();
      await refusal;
      daemon.disarm();
      // Whoever comes next sees nothing of it.
      await both.source.snapshot();
      await isAsBefore(both.source);
    });

    test('a daemon that is told to end does, and the next one finishes the merge', async () => {
      await using both = await pair();
      const { refusal } = await heldMerge(both);
      await daemon.stop();
      await refusal.catch(() => undefined);
      daemon.disarm();
      await daemon.restart();
      await both.source.snapshot();
      expect(await run(both.source, 'cd /root; ls; cat changed')).toBe('a\nb\nchanged\nnew');
    });

    test('a daemon that comes back to a target whose agent answers nothing serves all others, and can stop it', async () => {
      await using both = await pair();
      const { refusal } = await heldMerge(both);
      await daemon.kill();
      await refusal.catch(() => undefined);
      daemon.disarm();
      await stopAgent(both.source);
      await daemon.restart();
      expect(await run(both.fork, 'cat /root/changed')).toBe('new');
      await both.source.stop({ grace_s: 0 });
      await both.source.start();
      expect(['changed\nmine', 'a\nb\nchanged']).toContain(await run(both.source, 'ls /root'));
    });

    test('a home is purged', async () => {
      const own = await RunningDaemon.start();
      const [before] = [daemon];
      daemon = own;
      try {
        const both = await pair();
        const { refusal } = await heldMerge(both);
        await own.kill();
        await refusal.catch(() => undefined);
        await stopAgent(both.source);
        expect(await own.purge()).toEqual([]);
      } finally {
        daemon = before;
      }
    });
  });
});
