import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Peer } from './peers.ts';
import { median, timeShell } from './stopwatch.ts';
import { changeTen, makeWorkload, type WorkloadSize } from './workload.ts';

export interface Measurement {
  readonly filesystem: string;
  readonly work: string;
  readonly by: string;
  readonly medianMs: number;
  readonly runsMs: readonly number[];
}

const measurement = (
  filesystem: string,
  work: string,
  by: string,
  runsMs: readonly number[],
): Measurement => ({
  filesystem,
  work,
  by,
  medianMs: median(runsMs),
  runsMs,
});

/** A directory for one peer: a workspace's worktree for jvs, a plain directory for the others. */
const makePayload = async (peer: Peer, place: string): Promise<string> => {
  if (peer.name !== 'jvs') {
    await mkdir(join(place, 'payload'));
    return join(place, 'payload');
  }
  await timeShell('jvs init ws', { cwd: place });
  return join(place, 'ws/main');
};

export const measurePeer = async (
  filesystem: { readonly kind: string; readonly path: string },
  peer: Peer,
  size: WorkloadSize,
  runs: number,
): Promise<Measurement[]> => {
  const times: Record<'first' | 'again' | 'restore', number[]> = { first: [], again: [], restore: [] };
  for (let round = 0; round < runs; round += 1) {
    const place = await mkdtemp(join(filesystem.path, 'peer-'));
    const payload = await makePayload(peer, place);
    const options = { cwd: payload, env: peer.env };
    await makeWorkload(payload, size);
    await timeShell(peer.prepare(place), options);
    // What was written by the preparation must not be written out while the clock runs.
    await timeShell('sync', options);
    times.first.push(await timeShell(peer.first(place), options));
    await timeShell('sync', options);
    await changeTen(payload, size);
    times.again.push(await timeShell(peer.again(place), options));
    await timeShell('sync', options);
    await changeTen(payload, size);
    times.restore.push(await timeShell(peer.restore(place), options));
    await timeShell(
      `cd / && (btrfs subvolume delete ${place}/ws/main ${place}/ws/.jvs/trees/* || true) && rm -rf ${place} && sync`,
      { cwd: '/' },
    );
  }
  return [
    measurement(filesystem.kind, 'first snapshot', peer.name, times.first),
    measurement(filesystem.kind, 'snapshot, 10 files changed', peer.name, times.again),
    measurement(filesystem.kind, 'restore, 10 files changed', peer.name, times.restore),
  ];
};

/** Forks of worktrees of growing size: flat on btrfs. */
export const measureForks = async (
  filesystem: { readonly kind: string; readonly path: string },
  counts: readonly number[],
  runs: number,
): Promise<Measurement[]> => {
  const found: Measurement[] = [];
  for (const count of counts) {
    const place = await mkdtemp(join(filesystem.path, 'fork-'));
    await timeShell('jvs init ws', { cwd: place });
    const cwd = join(place, 'ws/main');
    await makeWorkload(cwd, { smallFiles: count, smallBytes: 64, largeFiles: 0, largeBytes: 0 });
    await timeShell('jvs snapshot base && sync', { cwd });
    const times: number[] = [];
    for (let round = 0; round < runs; round += 1)
      times.push(await timeShell(`jvs worktree fork fork-${round}`, { cwd }));
    found.push(measurement(filesystem.kind, `fork of ${count} files`, 'jvs', times));
  }
  return found;
};

export const measureStart = async (directory: string, runs: number): Promise<Measurement[]> => {
  await timeShell('jvs init start', { cwd: directory });
  const cwd = join(directory, 'start/main');
  await timeShell('jvs info', { cwd });
  const [ours, bare]: [number[], number[]] = [[], []];
  for (let round = 0; round < runs * 5; round += 1) {
    ours.push(await timeShell('jvs info', { cwd }));
    bare.push(await timeShell('node -e 0', { cwd }));
  }
  return [measurement('-', 'start-up', 'jvs info', ours), measurement('-', 'start-up', 'node -e 0', bare)];
};

export const measureMillion = async (
  filesystem: { readonly kind: string; readonly path: string },
  count: number,
  runs: number,
): Promise<{ measurements: Measurement[]; peakMiB: number }> => {
  const place = await mkdtemp(join(filesystem.path, 'million-'));
  await timeShell('jvs init ws', { cwd: place });
  const cwd = join(place, 'ws/main');
  const folders = Math.ceil(count / 1000);
  await timeShell(
    `for d in $(seq ${folders}); do mkdir d$d; (cd d$d; seq 1000 | split -l 1 -a 4 -d - f); done`,
    { cwd },
  );
  await timeShell('jvs snapshot base && sync', { cwd });
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round < runs; round += 1) {
    theirs.push(await timeShell("find . -printf '%s %T@\\n' > /dev/null", { cwd }));
    ours.push(await timeShell('jvs snapshot again', { cwd }));
  }
  const peakMiB = await peakMemory(cwd);
  await rm(place, { recursive: true, force: true });
  const work = `${count} files, nothing changed`;
  return {
    measurements: [
      measurement(filesystem.kind, work, 'jvs', ours),
      measurement(filesystem.kind, work, 'find', theirs),
    ],
    peakMiB,
  };
};

/** The most that the command and its helper held at once, read while they run. */
const peakMemory = async (cwd: string): Promise<number> => {
  const child = spawn('jvs', ['snapshot', 'measured'], { cwd, stdio: 'ignore' });
  let ended = false;
  const end = new Promise<void>((resolve) => child.on('close', () => resolve()));
  void end.then(() => {
    ended = true;
  });
  const residentKiB = async (pid: number): Promise<number> =>
    Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8').catch(() => ''))?.[1] ?? 0);
  const family = async (pid: number): Promise<number[]> => {
    const tasks = await readdir(`/proc/${pid}/task`).catch(() => []);
    const lists = await Promise.all(
      tasks.map((task) => readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '')),
    );
    const children = lists.join(' ').split(/\s+/).filter(Boolean).map(Number);
    return [pid, ...(await Promise.all(children.map(family))).flat()];
  };
  let peak = 0;
  while (!ended && child.pid !== undefined) {
    const sizes = await Promise.all((await family(child.pid)).map(residentKiB));
    peak = Math.max(
      peak,
      sizes.reduce((sum, size) => sum + size, 0),
    );
  }
  await end;
  return Math.round(peak / 1024);
};
