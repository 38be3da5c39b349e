import { appendFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { WatchEvent } from '../src/index.ts';
import { type Agent, run, shell, startAgent, until } from './guest/start-agent.ts';

let agent: Agent;
let dir: string;
let count = 0;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());
beforeEach(() => {
  dir = join(agent.dir, `case-${++count}`);
  mkdirSync(dir);
});

/** A machine that queues more events than the test makes cannot show the overflow. */
const kernelQueueEvents = Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8'));

const at = (name: string) => join(dir, name);

/** Watches, does the work, and gives all events up to the one of a last file made to mark the end. */
const eventsOf = async (path: string, recursive: boolean, work: () => void): Promise<string[]> => {
  const stop = new AbortController();
  const watch = agent.guest.watch(path, { recursive, signal: stop.signal });
  await watch.ready;
  work();
  writeFileSync(at('the-end'), '');
  const events: string[] = [];
  for await (const event of watch) {
    if (event.path === at('the-end')) break;
    events.push(show(event));
  }
  stop.abort();
  return events;
};

const allOf = async (watch: AsyncIterable<WatchEvent>): Promise<WatchEvent[]> => {
  const events: WatchEvent[] = [];
  for await (const event of watch) events.push(event);
  return events;
};

const show = ({ kind, path, to }: WatchEvent) =>
  [kind, path.slice(dir.length + 1), ...(to === null ? [] : [to.slice(dir.length + 1)])].join(' ');

describe('watching a directory', () => {
  it('tells what is made, changed, moved and removed in it', async () => {
    writeFileSync(at('old'), '');
    const events = await eventsOf(dir, false, () => {
      writeFileSync(at('new'), '');
      appendFileSync(at('old'), 'more');
      renameSync(at('old'), at('renamed'));
      rmSync(at('new'));
    });
    expect(events.filter((event) => event !== 'modified new')).toEqual([
      'created new',
      'modified old',
      'moved old renamed',
      'removed new',
    ]);
  });

  it('recursively sees what happens in directories that came later', async () => {
    mkdirSync(at('a/b'), { recursive: true });
    const events = await eventsOf(dir, true, () => {
      writeFileSync(at('a/b/deep'), '');
      mkdirSync(at('a/b/c/d'), { recursive: true });
      writeFileSync(at('a/b/c/d/file'), '');
      renameSync(at('a'), at('z'));
      writeFileSync(at('z/b/c/after'), '');
    });
    // How a new directory is met depends on when it is seen; that each thing is told once does not.
    for (const expected of ['a/b/deep', 'a/b/c', 'z/b/c/after']) {
      expect(events.filter((event) => event.startsWith('created') && event.endsWith(expected))).toHaveLength(
        1,
      );
    }
    expect(events.filter((event) => event.startsWith('created') && /\/c\/d\/file$/.test(event))).toHaveLength(
      1,
    );
    expect(events).toContain('moved a z');
  });

  it('not recursively stays with the directory itself', async () => {
    mkdirSync(at('below'));
    const events = await eventsOf(dir, false, () => writeFileSync(at('below/file'), ''));
    expect(events.filter((event) => event.includes('below/'))).toEqual([]);
  });

  it('tells what moves in from and out to elsewhere', async () => {
    const elsewhere = join(agent.dir, `elsewhere-${count}`);
    mkdirSync(join(elsewhere, 'in'), { recursive: true });
    writeFileSync(join(elsewhere, 'in/file'), '');
    writeFileSync(at('out'), '');
    const events = await eventsOf(dir, true, () => {
      renameSync(at('out'), join(elsewhere, 'out'));
      renameSync(join(elsewhere, 'in'), at('in'));
      writeFileSync(at('in/second'), '');
    });
    expect(events.filter((event) => !event.startsWith('modified')).sort()).toEqual([
      'created in',
      'created in/file',
      'created in/second',
      'removed out',
    ]);
  });

  it(
    'says so when more happened than could be told',
    skipFor(
      kernelQueueEvents > 40_000
        ? 'the kernel of this machine keeps more events than are made here'
        : undefined,
    ),
    async () => {
      const stop = new AbortController();
      const watch = agent.guest.watch(dir, { recursive: false, signal: stop.signal });
      await watch.ready;
      // Nobody reads meanwhile: the windows fill, then the kernel's own queue.
      await run(agent.guest, {
        argv: shell('for i in $(seq 60000); do echo $i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done | xargs touch'),
        cwd: dir,
      });
      let overflow = false;
      for await (const event of watch) {
        overflow = event.kind === 'overflow';
        if (overflow) break;
      }
      expect(overflow).toBe(true);
    },
  );

  it('ends without an error when it is aborted, and its worker goes', async () => {
    const stop = new AbortController();
    const watch = agent.guest.watch(dir, { recursive: true, signal: stop.signal });
    await watch.ready;
    const workers = async () =>
      (await run(agent.guest, ['ps', '--ppid', String(agent.pid), '-o', 'pid=,comm='])).stdout.split(
        'coppice-agent',
      ).length - 1;
    expect(await workers()).toBeGreaterThan(0);
    const events: WatchEvent[] = [];
    const reading = (async () => {
      for await (const event of watch) events.push(event);
    })();
    stop.abort();
    await reading;
    expect(events).toEqual([]);
    await until('the end of the worker', async () => (await workers()) === 0);
  });

  it('of a place that is not there is refused', async () => {
    const watch = agent.guest.watch(at('none'), { recursive: true, signal: new AbortController().signal });
    await expect(watch.ready).rejects.toMatchObject({ code: 'not_found' });
    await expect(allOf(watch)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('ends when the directory itself is removed', async () => {
    mkdirSync(at('gone'));
    const watch = agent.guest.watch(at('gone'), { recursive: true, signal: new AbortController().signal });
    await watch.ready;
    rmSync(at('gone'), { recursive: true });
    expect((await allOf(watch)).map(show)).toContain('removed gone');
  });
});
