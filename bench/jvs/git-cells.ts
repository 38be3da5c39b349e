import { chmod, chown, mkdir, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Finding, medianRatio } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import type { BenchFilesystem } from './filesystem.ts';
import { gitEnv } from './peers.ts';
import { timeShell } from './stopwatch.ts';
import { changeFiles, makeWorkload, type WorkloadSize } from './workload.ts';

/** Who runs the commands. A plain user has no privileges, and owns the files. */
export const users = { root: { uid: 0, gid: 0 }, user: { uid: 65_534, gid: 65_534 } } as const;
export type User = keyof typeof users;

export const gitWorks = ['first', 'ten changed', 'restore 10', 'restore 11,000', 'fork', 'verify'] as const;
export type GitWork = (typeof gitWorks)[number];

/** How many files change before each work, in a tree of 50,000. */
const changedBefore: Readonly<Partial<Record<GitWork, number>>> = {
  'ten changed': 10,
  'restore 10': 10,
  'restore 11,000': 11_000,
};

interface Side {
  readonly name: string;
  readonly env: Readonly<Record<string, string>>;
  readonly prepare: string;
  readonly works: Readonly<Record<GitWork, string>>;
  /** It syncs one file after another, so that a first snapshot takes a minute: one measurement is enough. */
  readonly syncsEach: boolean;
  /** Removes what `fork` made; not measured. */
  readonly unfork: string;
}

const git = (name: string, settings: Readonly<Record<string, string>>): Side => ({
  name,
  env: gitEnv(settings),
  prepare: 'git init -q',
  works: {
    first: 'git add -A && git commit -q -m first',
    'ten changed': 'git add -A && git commit -q -m again',
    'restore 10': 'git reset -q --hard && git clean -qfd',
    'restore 11,000': 'git reset -q --hard && git clean -qfd',
    fork: 'git worktree add -q --detach ../fork',
    verify: 'git fsck --no-progress',
  },
  syncsEach: settings['core.fsync'] === 'all',
  unfork: 'git worktree remove --force ../fork',
});

/**
 * git as it is by default syncs neither what it restores nor loose objects. `core.fsync=all` syncs all that it stores, as jvs does, but
 * still not the files that it restores: git cannot be told to.
 */
const sides: readonly Side[] = [
  {
    name: 'jvs',
    env: {},
    prepare: 'true',
    works: {
      first: 'jvs snapshot first',
      'ten changed': 'jvs snapshot again',
      'restore 10': 'jvs restore HEAD',
      'restore 11,000': 'jvs restore HEAD',
      fork: 'jvs worktree fork HEAD fork',
      verify: 'jvs verify HEAD',
    },
    syncsEach: false,
    unfork: 'jvs worktree remove fork --force',
  },
  git('git', {}),
  git('git, core.fsync=all', { 'core.fsync': 'all' }),
];

export const gitPeers = sides.slice(1).map(({ name }) => name);

export interface CellOptions {
  readonly filesystem: BenchFilesystem;
  readonly user: User;
  readonly works: readonly GitWork[];
  readonly size: WorkloadSize;
  readonly rounds: number;
  /** Leave out the git that syncs each file, which takes minutes. */
  readonly withoutSyncedGit: boolean;
}

interface Place {
  readonly path: string;
  readonly payload: string;
}

/** One filesystem and one user: jvs and git take turns. Answers a finding for each work and peer. */
export const measureGitCell = async (options: CellOptions): Promise<Map<GitWork, Map<string, Finding>>> => {
  const { filesystem, user, works, size, rounds, withoutSyncedGit } = options;
  const taking = sides.filter(({ syncsEach }) => !(syncsEach && withoutSyncedGit));
  const who = users[user];
  const home = await mkdtemp(join(filesystem.path, `${user}-`));
  await chmod(home, 0o755);
  const workload = join(home, 'workload');
  await mkdir(workload);
  await makeWorkload(workload, size);
  const samples = new Map<string, number[]>();
  const measure = async (side: Side, work: GitWork, { payload }: Place): Promise<void> => {
    const count = changedBefore[work];
    const ratio = size.smallFiles / 50_000;
    if (count) await changeFiles(payload, size, Math.max(10, Math.floor(count * ratio)));
    // What was changed must not be written out while the clock runs.
    await timeShell('sync', { cwd: payload });
    const elapsedMs = await timeShell(side.works[work], { cwd: payload, env: side.env, ...who });
    process.stderr.write(`${filesystem.kind} ${user}: ${side.name}: ${work}: ${elapsedMs.toFixed(0)} ms\n`);
    const key = `${work}: ${side.name}`;
    samples.set(key, [...(samples.get(key) ?? []), elapsedMs]);
    if (work === 'fork') await timeShell(side.unfork, { cwd: payload, env: side.env, ...who });
  };

  const places = new Map<Side, Place>();
  const firstRounds = works.includes('first') ? Math.min(rounds, 3) : 1;
  for (let round = 0; round < firstRounds; round += 1) {
    for (const side of taking) {
      if (round > 0 && side.syncsEach) continue;
      const path = await mkdtemp(join(home, 'side-'));
      await chown(path, who.uid, who.gid);
      const payload = join(path, side.name === 'jvs' ? 'ws/main' : 'payload');
      if (side.name === 'jvs') await timeShell('jvs init ws', { cwd: path, ...who });
      else await timeShell('mkdir payload', { cwd: path, ...who });
      await timeShell(`cp -r --reflink=never ${workload}/. . && ${side.prepare} && sync`, {
        cwd: payload,
        env: side.env,
        ...who,
      });
      const place = { path, payload };
      await measure(side, 'first', place);
      if (side.syncsEach || round === firstRounds - 1) places.set(side, place);
      else await removePlace(place);
    }
  }
  for (let round = 0; round < rounds; round += 1)
    for (const work of works)
      if (work !== 'first') for (const [side, place] of places) await measure(side, work, place);
  for (const place of places.values()) await removePlace(place);

  return new Map(
    works.map((work) => {
      const ours = summarize(samples.get(`${work}: jvs`) ?? []);
      return [
        work,
        new Map(
          taking
            .slice(1)
            .map(({ name }) => [name, medianRatio(ours, summarize(samples.get(`${work}: ${name}`) ?? []))]),
        ),
      ];
    }),
  );
};

const removePlace = ({ path }: Place): Promise<number> =>
  timeShell(
    `(btrfs subvolume delete ${path}/ws/main ${path}/ws/.jvs/trees/* || true) && rm -rf ${path} && sync`,
    { cwd: '/' },
  );
