import { atMost, type Target } from '../harness/target.ts';

export interface JvsRow {
  readonly name: string;
  readonly title: string;
  readonly targets: Readonly<Record<string, Target>>;
}

export const filesystems = ['ext4', 'xfs', 'btrfs'] as const;

const aheadOf = (...names: string[]): Record<string, Target> =>
  Object.fromEntries(names.map((name) => [name, atMost(1)]));

const everybody = aheadOf('rsync --link-dest', 'git', 'restic', 'borg');

/** What a run must reach; a ratio is to the peer that the target is named after. */
export const jvsRows: readonly JvsRow[] = [
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
