import { atMost, type Target } from '../harness/target.ts';
import { type GitWork, gitPeers, gitWorks, type User, users } from './git-cells.ts';

export interface JvsRow {
  readonly name: string;
  readonly title: string;
  readonly targets: Readonly<Record<string, Target>>;
}

export const filesystems = ['ext4', 'xfs', 'btrfs'] as const;

const aheadOf = (...names: string[]): Record<string, Target> =>
  Object.fromEntries(names.map((name) => [name, atMost(1)]));

const everybody = aheadOf('rsync --link-dest', 'git', 'restic', 'borg');

export interface GitCell {
  readonly kind: (typeof filesystems)[number];
  readonly user: User;
}
export const gitCells: readonly GitCell[] = filesystems.flatMap((kind) =>
  (Object.keys(users) as User[]).map((user) => ({ kind, user })),
);
export const cellName = ({ kind, user }: GitCell): string => `${kind}/${user}`;

const gitTitles: Readonly<Record<GitWork, string>> = {
  first: 'first snapshot of 50,000 files',
  'ten changed': 'snapshot with 10 of 50,000 files changed',
  'restore 10': 'restore over 10 changed files of 50,000; jvs keeps the changes, git drops them',
  'restore 11,000': 'restore over 11,000 changed files of 50,000; jvs keeps the changes, git drops them',
  fork: 'fork of a worktree of 50,000 files',
  verify: 'verify of a snapshot of 50,000 files',
};

/** What a run must reach; a ratio is to the peer that the target is named after. */
export const jvsRows: readonly JvsRow[] = [
  ...gitCells.flatMap((cell): JvsRow[] =>
    gitWorks.map((work) => ({
      name: `${cellName(cell)} ${work}`,
      title: `${gitTitles[work]}, on ${cell.kind} as ${cell.user === 'root' ? 'root' : 'a plain user'}`,
      targets: aheadOf(...gitPeers),
    })),
  ),
  ...filesystems.flatMap((kind): JvsRow[] => [
    {
      name: `${kind} first`,
      title: `first snapshot on ${kind}, hashed on the way`,
      // Elsewhere `cp` shares blocks and reads nothing, so that it says nothing about hashing.
      targets: { ...(kind === 'ext4' ? { 'cp -a': atMost(1.2) } : {}), ...aheadOf('git', 'restic', 'borg') },
    },
    {
      name: `${kind} again`,
      title: `snapshot with 10 files changed on ${kind}`,
      targets: { 'cp -a': atMost(0.1), ...everybody },
    },
    {
      name: `${kind} restore`,
      title: `restore with 10 files changed on ${kind}`,
      targets: { 'cp -a': atMost(0.1), ...everybody },
    },
  ]),
  {
    name: 'fork',
    title: 'fork of a worktree of 100,000 files on btrfs',
    targets: { '1,000 files': atMost(1.5) },
  },
  { name: 'start', title: '`jvs info`', targets: { 'node -e 0': atMost(2) } },
  {
    name: 'million',
    title: 'snapshot of a million files of which none changed',
    targets: { find: atMost(3), memory: atMost(400, 'MiB') },
  },
];
