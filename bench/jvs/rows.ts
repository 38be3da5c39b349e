import { spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Finding, medianRatio } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import type { BenchFilesystem } from './filesystem.ts';
import { timeShell } from './stopwatch.ts';
import { makeWorkload } from './workload.ts';

const compare = (ours: readonly number[], peer: readonly number[]): Finding =>
  medianRatio(summarize(ours), summarize(peer));

/** Forks of a small and a large worktree, by turns. */
export const measureForks = async (
  filesystem: BenchFilesystem,
  [small, large]: readonly [number, number],
  rounds: number,
): Promise<Finding> => {
  const worktrees: string[] = [];
  for (const count of [small, large]) {
    const place = await mkdtemp(join(filesystem.path, 'fork-'));
    await timeShell('jvs init ws', { cwd: place });
    const cwd = join(place, 'ws/main');
    await makeWorkload(cwd, { smallFiles: count, smallBytes: 64, largeFiles: 0, largeBytes: 0 });
    await timeShell('jvs snapshot base && sync', { cwd });
    worktrees.push(cwd);
  }
  const times: number[][] = [[], []];
  for (let round = 0; round < rounds; round += 1)
    for (const [which, cwd] of worktrees.entries())
      times[which]?.push(await timeShell(`jvs worktree fork fork-${round}`, { cwd }));
  return compare(times[1] ?? [], times[0] ?? []);
};

export const measureStart = async (directory: string, rounds: number): Promise<Finding> => {
  await timeShell('jvs init start', { cwd: directory });
  const cwd = join(directory, 'start/main');
  await timeShell('jvs info', { cwd });
  const [ours, bare]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds * 5; round += 1) {
    ours.push(await timeShell('jvs info', { cwd }));
    bare.push(await timeShell('node -e 0', { cwd }));
  }
  return compare(ours, bare);
};

export const measureMillion = async (
  filesystem: BenchFilesystem,
  count: number,
  rounds: number,
): Promise<{ find: Finding; memory: Finding }> => {
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
  for (let round = 0; round < rounds; round += 1) {
    theirs.push(await timeShell("find . -printf '%s %T@\\n' > /dev/null", { cwd }));
    ours.push(await timeShell('jvs snapshot again', { cwd }));
  }
  // The files go with their filesystem: to remove them one by one would take longer than to make them.
  const peakMiB = await peakMemory(cwd);
  return { find: compare(ours, theirs), memory: { value: peakMiB } };
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
