import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon, tinyImage } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type KillPoint, killPoints } from '../../packages/daemon/src/journal/kill-points.ts';
import { collect, streamOf } from '../e2e/transfer/export-bytes.ts';

/** Made ready beforehand by a daemon that nobody kills. */
interface Scene {
  readonly call: () => Promise<unknown>;
  /** The state is the old one or the new one, whole. */
  readonly check: () => Promise<void>;
}

const sources = ['daemon', 'forge'].map((name) =>
  fileURLToPath(new URL(`../../packages/${name}/src/`, import.meta.url)),
);

test('every step in the code is a kill point that the walk knows, and every kill point is in the code', () => {
  const files = sources.flatMap((directory) =>
    readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => join(directory, file)),
  );
  const steps = files.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\bstep\('([^']+)'\)/g)].map((match) => match[1]),
  );
  expect([...new Set(steps)].sort()).toEqual([...killPoints].sort());
});

describe('a daemon that is killed', () => {
  let daemon: RunningDaemon;
  let bystander: Sandbox;
  let counter: number;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    bystander = await daemon.client.sandboxes.create({ name: 'bystander' });
    counter = await count(bystander);
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** Starts something that never stops writing; returns the number of the job. */
  async function count(sandbox: Sandbox): Promise<number> {
    return (await sandbox.jobs.start('while :; do echo tick; sleep 0.01; done')).id;
  }

  async function counted(sandbox: Sandbox, job: number): Promise<number> {
    const found = (await sandbox.jobs.list()).find(({ id }) => id === job);
    return found?.running ? found.log_bytes : -1;
  }

  async function countsOn(sandbox: Sandbox, job: number, before: number): Promise<void> {
    expect(await counted(sandbox, job)).toBeGreaterThanOrEqual(before);
    await eventually('the counter goes on', async () => (await counted(sandbox, job)) > before);
  }

  const run = async (sandbox: Sandbox, command: string): Promise<string> =>
    (await sandbox.exec(command)).stdout.trim();

  const find = async (name: string) =>
    (await daemon.client.sandboxes.list()).find((sandbox) => sandbox.name === name);

  async function subject(): Promise<Sandbox> {
    const sandbox = await daemon.client.sandboxes.create({ name: 'subject' });
    await run(sandbox, 'echo old > /root/a; echo old > /root/b; echo old > /root/c');
    return sandbox;
  }

  const content = (sandbox: Sandbox): Promise<string> => run(sandbox, 'cat /root/a /root/b /root/c 2>&1');
  const old = 'old\nold\nold';

  async function checkLifecycle(sandbox: Sandbox, states: readonly string[]): Promise<void> {
    const { state } = await sandbox.inspect();
    expect(states).toContain(state);
    if (state === 'stopped') await sandbox.start();
    expect(await content(sandbox)).toBe(old);
  }

  const scenes: Record<string, () => Promise<Scene>> = {
    create: async () => ({
      call: () => daemon.client.sandboxes.create({ name: 'subject' }),
      check: async () => {
        const found = await find('subject');
        if (found === undefined) return;
        expect(found.state).toBe('running');
        expect(await run(daemon.client.sandboxes.at(found.id), 'echo here')).toBe('here');
      },
    }),
    start: async () => {
      const sandbox = await subject();
      await sandbox.stop({ grace_s: 0 });
      return { call: () => sandbox.start(), check: () => checkLifecycle(sandbox, ['stopped', 'running']) };
    },
    stop: async () => {
      const sandbox = await subject();
      return {
        call: () => sandbox.stop({ grace_s: 0 }),
        check: () => checkLifecycle(sandbox, ['stopped', 'running']),
      };
    },
    pause: async () => {
      const sandbox = await subject();
      return {
        call: () => sandbox.pause({ keep: 'disk' }),
        check: () => checkLifecycle(sandbox, ['paused', 'running']),
      };
    },
    resume: async () => {
      const sandbox = await subject();
      await sandbox.pause({ keep: 'disk' });
      return { call: () => sandbox.resume(), check: () => checkLifecycle(sandbox, ['paused', 'running']) };
    },
    destroy: async () => {
      const sandbox = await subject();
      const { id } = await sandbox.snapshot();
      const { undo_snapshot_id: undo } = await sandbox.restore(id);
      return {
        call: () => sandbox.destroy(),
        check: async () => {
          const state = (await find('subject'))?.state;
          expect([undefined, 'running']).toContain(state);
          const kept = state === undefined ? [id] : [id, undo];
          await eventually('what undid something is gone with it', async () => {
            const snapshots = await daemon.client.snapshots.list();
            return JSON.stringify(snapshots.map((one) => one.id)) === JSON.stringify(kept);
          });
        },
      };
    },
    snapshot: async () => {
      const sandbox = await subject();
      const job = await count(sandbox);
      const before = await counted(sandbox, job);
      return {
        call: () => sandbox.snapshot({ name: 'taken' }),
        check: async () => {
          await countsOn(sandbox, job, before);
          const snapshots = await sandbox.snapshots();
          expect(['', 'taken']).toContain(snapshots.map(({ name }) => name).join());
          if (snapshots.length === 0) return;
          await run(sandbox, 'rm /root/a');
          await sandbox.restore('taken');
          expect(await content(sandbox)).toBe(old);
        },
      };
    },
    'snapshot-delete': async () => {
      const sandbox = await subject();
      const { id } = await sandbox.snapshot({ name: 'taken' });
      return {
        call: () => daemon.client.snapshots.delete(id),
        check: async () => {
          if ((await sandbox.snapshots()).length > 0) await sandbox.restore('taken');
          expect(await content(sandbox)).toBe(old);
        },
      };
    },
    restore: async () => {
      const sandbox = await subject();
      await sandbox.snapshot({ name: 'then' });
      await run(sandbox, 'echo new > /root/a; echo new > /root/b; echo new > /root/c');
      return {
        call: () => sandbox.restore('then'),
        check: async () => {
          expect((await sandbox.inspect()).state).toBe('running');
          expect([old, 'new\nnew\nnew']).toContain(await content(sandbox));
          const undo = (await sandbox.snapshots()).find(({ automatic }) => automatic);
          expect(undo !== undefined).toBe((await content(sandbox)) === old);
          await sandbox.restore(undo?.id ?? 'then');
          expect(await content(sandbox)).toBe(undo === undefined ? old : 'new\nnew\nnew');
        },
      };
    },
    merge: async () => {
      const sandbox = await subject();
      const job = await count(sandbox);
      const before = await counted(sandbox, job);
      const fork = (await sandbox.fork({ name: 'fork' })).sandboxes[0]!;
      await run(fork, 'echo new > /root/a; echo new > /root/b; echo new > /root/c');
      return {
        call: () => sandbox.merge(fork),
        check: async () => {
          await countsOn(sandbox, job, before);
          expect([old, 'new\nnew\nnew']).toContain(await content(sandbox));
          expect(await content(fork)).toBe('new\nnew\nnew');
          await sandbox.merge(fork);
          expect(await content(sandbox)).toBe('new\nnew\nnew');
          // What was merged is remembered: changing it on one side is no conflict.
          await run(sandbox, 'echo mine > /root/a');
          await run(fork, 'echo newer > /root/b');
          expect((await sandbox.merge(fork)).changes.map(({ path }) => path)).toEqual(['/root/b']);
          expect(await content(sandbox)).toBe('mine\nnewer\nnew');
          await fork.destroy();
        },
      };
    },
    /** Of a file that brings its image, which is not here. */
    import: async () => {
      await daemon.client.images.import('shipped', shippedImage());
      const sandbox = await daemon.client.sandboxes.create({ name: 'subject', image: 'shipped' });
      await run(sandbox, 'echo old > /root/a; echo old > /root/b; echo old > /root/c');
      const { id } = await sandbox.snapshot({ name: 'shipped' });
      const file = await collect(daemon.client.snapshots.export(id));
      await clear();
      return {
        call: () => daemon.client.snapshots.import(streamOf(file)),
        check: async () => {
          expect(readdirSync(join(daemon.home, 'imports'))).toEqual([]);
          const [found] = await daemon.client.snapshots.list();
          const images = (await daemon.client.images.list()).map(({ name }) => name);
          expect(images).toEqual(found === undefined ? ['tiny'] : ['tiny', 'shipped']);
          const { id } = found ?? (await daemon.client.snapshots.import(streamOf(file)));
          const { sandboxes } = await daemon.client.snapshots.fork(id);
          expect(await content(sandboxes[0]!)).toBe(old);
        },
      };
    },
  };

  /** The image that is here with another owner, and so with another digest. */
  async function* shippedImage() {
    const args = ['-c', '--owner=7', '-C', await tinyImage(), '.'];
    const tar = spawn('tar', args, { stdio: ['ignore', 'pipe', 'inherit'] });
    yield* tar.stdout;
  }

  /** What the daemon says there is, and what the kernel and the pool show. */
  async function compare(): Promise<{ said: object; seen: object; settled: boolean }> {
    const sandboxes = await daemon.client.sandboxes.list();
    const snapshots = await daemon.client.snapshots.list();
    const running = sandboxes.filter(({ state }) => state === 'running').map(({ id }) => id);
    const { traces } = daemon;
    return {
      settled: sandboxes.every(({ state }) => state !== 'creating' && state !== 'destroying'),
      said: {
        machines: running,
        runDirectories: running,
        disks: sandboxes.map(({ id }) => id),
        snapshots: snapshots.map(({ id }) => id),
        memories: [],
        network: [],
      },
      seen: {
        machines: traces.machines(),
        runDirectories: traces.runDirectories(),
        disks: traces.disks(),
        snapshots: traces.snapshots(),
        memories: traces.memories(),
        network: traces.network(),
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

  async function clear(): Promise<void> {
    for (const { id, name } of await daemon.client.sandboxes.list())
      if (name !== 'bystander') await daemon.client.sandboxes.at(id).destroy();
    for (const { id } of await daemon.client.snapshots.list()) await daemon.client.snapshots.delete(id);
    for (const { id, name } of await daemon.client.images.list())
      if (name === 'shipped') await daemon.client.images.remove(id);
  }

  async function walk(point: KillPoint, makeScene: () => Promise<Scene>): Promise<void> {
    await clear();
    const scene = await makeScene();
    const before = await counted(bystander, counter);
    daemon.armKillPoint(point);
    await expect(scene.call()).rejects.toThrow();
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();

    await daemon.restart();
    await countsOn(bystander, counter, before);
    await nothingUnknown();
    await scene.check();
    await clear();
    await nothingUnknown();
  }

  // Other files walk the rest: memory-kill-points.test.ts, run-kill-points.test.ts, forge-kill-points.test.ts, branch-kill-points.test.ts
  // and, for webhooks, e2e/run-webhooks.test.ts.
  const ofAnyDriver = killPoints.filter(
    (point) =>
      !/^checkpoint\.|memory-written$|^run\.|^run-pause\.|^race\.|^talk\.|^webhook\.|^forge-|^branch-/.test(
        point,
      ),
  );
  test.each(ofAnyDriver)('at %s leaves the old or the new state, and nothing else', (point) =>
    walk(point, scenes[point.slice(0, point.lastIndexOf('.'))]!),
  );

  const whileForking = killPoints.filter((point) => /^create\.|^snapshot\.committed/.test(point));
  test.each(whileForking)('at %s of a fork leaves the source as it was, and whole forks or none', (point) =>
    walk(point, async () => {
      const source = await subject();
      const job = await count(source);
      const before = await counted(source, job);
      return {
        call: () => source.fork({ count: 2, name_prefix: 'twig' }),
        check: async () => {
          await countsOn(source, job, before);
          const twigs = (await Promise.all(['twig-1', 'twig-2'].map(find))).filter(
            (twig) => twig !== undefined,
          );
          for (const { id } of twigs) expect(await content(daemon.client.sandboxes.at(id))).toBe(old);
          const kept = twigs.length === 0 ? 0 : 1;
          await eventually('the snapshot goes where nothing grew from it', async () => {
            return (await source.snapshots()).length === kept;
          });
        },
      };
    }),
  );
});
