import { readdirSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { SoakClient } from './soak-client.ts';

export interface Progress {
  /** Pieces of work done by all clients. */
  readonly works: number;
  readonly kills: number;
}

export interface SoakOptions {
  readonly clients: number;
  readonly sandboxes: number;
  readonly seed: number;
  /** Asked again and again while the clients work. */
  readonly isOver: (progress: Progress) => boolean;
  readonly shallKill: (progress: Progress) => boolean;
  readonly onProgress?: (progress: Progress) => void;
}

export interface SoakReport extends Progress {
  readonly byWork: Readonly<Record<string, number>>;
  readonly filesChecked: number;
}

interface Footprint {
  readonly openFiles: number;
  readonly memoryBytes: number;
  readonly poolBytes: number;
}

const pollMs = 20;
/** What a daemon may hold more than on its first day: caches, compiled code, freed memory that is not given back. */
const memoryAllowanceBytes = 192 * 1024 ** 2;
const openFilesAllowance = 8;
const poolAllowanceBytes = 64 * 1024 ** 2;

/** Random work of many clients on a daemon that is killed again and again; fails when anything is lost or left. */
export const soak = async (options: SoakOptions): Promise<SoakReport> => {
  await using daemon = await RunningDaemon.start({ config: { limits: { max_sandboxes: 10_000 } } });
  const before = footprint(daemon);
  const clients = Array.from(
    { length: options.clients },
    (_, index) => new SoakClient(daemon.client, `c${index}`, randomFrom(options.seed + index)),
  );
  await Promise.all(
    clients.map((client, index) =>
      client.createSandboxes(shareOf(options.sandboxes, options.clients, index)),
    ),
  );
  const byWork: Record<string, number> = {};
  const progress = { works: 0, kills: 0 };
  const failed = new AbortController();
  const isOver = (): boolean => failed.signal.aborted || options.isOver(progress);

  const work = async (client: SoakClient): Promise<void> => {
    while (!isOver()) {
      const name = await client.work();
      byWork[name] = (byWork[name] ?? 0) + 1;
      progress.works += 1;
      options.onProgress?.(progress);
    }
  };
  const kill = async (): Promise<void> => {
    while (!isOver()) {
      if (!options.shallKill(progress)) {
        await sleep(pollMs);
        continue;
      }
      await daemon.kill('SIGKILL');
      await daemon.restart();
      progress.kills += 1;
    }
  };
  const stopAtFailure = (error: unknown): never => {
    failed.abort();
    throw error;
  };
  const outcomes = await Promise.allSettled(
    [...clients.map(work), kill()].map((task) => task.catch(stopAtFailure)),
  );
  const failures = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
  if (failures.length > 0) throw new AggregateError(failures, `${failures[0]}\n${await lastEvents(daemon)}`);

  let filesChecked = 0;
  for (const client of clients) filesChecked += await client.verify();
  await onlyWhatIsKnown(daemon);
  await removeAll(daemon);
  await onlyWhatIsKnown(daemon);
  await nothingGrew(daemon, before);
  return { ...progress, byWork, filesChecked };
};

/** What the daemon did lately, for whoever looks for the reason. */
async function lastEvents(daemon: RunningDaemon): Promise<string> {
  await daemon.restart();
  const { last_seq: last } = await daemon.client.events.list({ limit: 1 });
  const { events } = await daemon.client.events.list({ after: Math.max(0, last - 200) });
  return events.map((event) => JSON.stringify(event)).join('\n');
}

const shareOf = (total: number, parts: number, index: number): number =>
  Math.max(1, Math.floor(total / parts) + (index < total % parts ? 1 : 0));

/** The kernel and the pool show what the daemon says, and nothing else. */
async function onlyWhatIsKnown(daemon: RunningDaemon): Promise<void> {
  const sandboxes = await daemon.client.sandboxes.list();
  const snapshots = await daemon.client.snapshots.list();
  const ids = sandboxes.map(({ id }) => id).sort();
  const running = sandboxes.filter(({ state }) => state === 'running').map(({ id }) => id);
  const expected = JSON.stringify([running.sort(), running, ids, snapshots.map(({ id }) => id).sort()]);
  const { traces } = daemon;
  const seen = (): string =>
    JSON.stringify([traces.machines(), traces.runDirectories(), traces.disks(), traces.snapshots()]);
  await eventually('nothing unknown is left', () => seen() === expected, 60_000).catch((error: unknown) => {
    throw new Error(`${(error as Error).message}: expected ${expected}, but the machine has ${seen()}`);
  });
}

async function removeAll({ client }: RunningDaemon): Promise<void> {
  for (const { id } of await client.sandboxes.list()) await client.sandboxes.at(id).destroy();
  for (const { id } of await client.snapshots.list()) await client.snapshots.delete(id);
}

async function nothingGrew(daemon: RunningDaemon, before: Footprint): Promise<void> {
  let now = footprint(daemon);
  const isBounded = (): boolean => {
    now = footprint(daemon);
    return (
      now.openFiles <= before.openFiles + openFilesAllowance &&
      now.memoryBytes <= before.memoryBytes + memoryAllowanceBytes &&
      now.poolBytes <= before.poolBytes + poolAllowanceBytes
    );
  };
  // Space of what was deleted comes back in the background.
  await eventually('nothing grew', isBounded, 120_000).catch(() => {
    throw new Error(`the daemon grew from ${JSON.stringify(before)} to ${JSON.stringify(now)}`);
  });
}

function footprint({ pid, home }: RunningDaemon): Footprint {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const pool = statfsSync(join(home, 'pool'));
  return {
    openFiles: readdirSync(`/proc/${pid}/fd`).length,
    memoryBytes: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024,
    poolBytes: (pool.blocks - pool.bfree) * pool.bsize,
  };
}

/** A small generator whose numbers can be had again. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
