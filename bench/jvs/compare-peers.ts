import { mkdir, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Summary, summarize } from '../harness/summary.ts';
import type { BenchFilesystem } from './filesystem.ts';
import { type Peer, peers } from './peers.ts';
import { timeShell } from './stopwatch.ts';
import { changeFiles, makeWorkload, type WorkloadSize } from './workload.ts';

export type Work = 'first' | 'again' | 'restore';
export type Comparison = Readonly<Record<Work, Readonly<Record<string, Summary>>>>;

interface Place {
  readonly path: string;
  readonly payload: string;
}

/** Of the filesystem that has a target for first snapshots; elsewhere the peers are far behind. */
const firstRounds = { ext4: 3, elsewhere: 1 };
/** Everybody but jvs and the two copiers takes so long for a first one that a second measurement shows nothing new. */
const measuredAgain = new Set(['jvs', 'cp -a', 'rsync --link-dest']);

/** A directory with a copy of the workload: a workspace's worktree for jvs, a plain one for the others. */
const prepare = async (filesystem: BenchFilesystem, peer: Peer, workload: string): Promise<Place> => {
  const path = await mkdtemp(join(filesystem.path, 'peer-'));
  const payload = join(path, peer.name === 'jvs' ? 'ws/main' : 'payload');
  if (peer.name === 'jvs') await timeShell('jvs init ws', { cwd: path });
  else await mkdir(payload);
  // What was written by the preparation must not be written out while the clock runs.
  await timeShell(`cp -a --reflink=never ${workload}/. . && ${peer.prepare(path)} && sync`, {
    cwd: payload,
    env: peer.env,
  });
  return { path, payload };
};

const remove = ({ path }: Place): Promise<number> =>
  timeShell(
    `(btrfs subvolume delete ${path}/ws/main ${path}/ws/.jvs/trees/* || true) && rm -rf ${path} && sync`,
    { cwd: '/' },
  );

/** Everybody takes turns, so that whatever the machine does beside is shared by all. */
export const comparePeers = async (
  filesystem: BenchFilesystem,
  size: WorkloadSize,
  rounds: number,
): Promise<Comparison> => {
  const samples: Record<Work, Record<string, number[]>> = { first: {}, again: {}, restore: {} };
  const add = (work: Work, peer: Peer, elapsedMs: number): void => {
    const series = samples[work][peer.name] ?? [];
    series.push(elapsedMs);
    samples[work][peer.name] = series;
  };
  const places = new Map<Peer, Place>();
  const workload = join(filesystem.path, 'workload');
  await mkdir(workload);
  await makeWorkload(workload, size);
  const first = filesystem.kind === 'ext4' ? firstRounds.ext4 : firstRounds.elsewhere;
  for (let round = 0; round < Math.min(rounds, first); round += 1) {
    for (const peer of peers) {
      if (round > 0 && !measuredAgain.has(peer.name)) continue;
      process.stderr.write(`${filesystem.kind}: ${peer.name}, first snapshot\n`);
      const place = await prepare(filesystem, peer, workload);
      const options = { cwd: place.payload, env: peer.env };
      add('first', peer, await timeShell(peer.first(place.path), options));
      if (round === 0) places.set(peer, place);
      else await remove(place);
    }
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const [peer, { path, payload }] of places) {
      if (round > 0 && peer.slow) continue;
      process.stderr.write(`${filesystem.kind}: ${peer.name}, ten files changed\n`);
      const options = { cwd: payload, env: peer.env };
      await timeShell(`${peer.clear?.(path) ?? 'true'} && sync`, options);
      await changeFiles(payload, size, 10);
      add('again', peer, await timeShell(peer.again(path), options));
      await timeShell('sync', options);
      await changeFiles(payload, size, 10);
      add('restore', peer, await timeShell(peer.restore(path), options));
    }
  }
  for (const place of places.values()) await remove(place);
  const summaries = (work: Work): Record<string, Summary> =>
    Object.fromEntries(Object.entries(samples[work]).map(([name, series]) => [name, summarize(series)]));
  return { first: summaries('first'), again: summaries('again'), restore: summaries('restore') };
};
