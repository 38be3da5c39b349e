import type { MergeConflict } from '@coppice/disks';
import { type BenchGit, records } from './bench-git.ts';

export type Side = 'ours' | 'theirs';

interface Entry {
  readonly mode: string;
  readonly sha: string;
}

/** A path that git could not merge: what it was in the common commit, here and there. */
export interface Unmerged {
  /** From the top of the repository. */
  readonly path: string;
  readonly base: Entry | undefined;
  readonly ours: Entry | undefined;
  readonly theirs: Entry | undefined;
}

export async function unmergedIn(git: BenchGit): Promise<Unmerged[]> {
  const found = new Map<string, (Entry | undefined)[]>();
  for (const record of records(await git.run(['ls-files', '--unmerged', '-z']))) {
    const [, mode = '', sha = '', stage = '', path = ''] =
      /^(\d+) ([0-9a-f]+) ([123])\t(.*)$/s.exec(record) ?? [];
    const entries = found.get(path) ?? [];
    entries[Number(stage)] = { mode, sha };
    found.set(path, entries);
  }
  return [...found].map(([path, [, base, ours, theirs]]) => ({ path, base, ours, theirs }));
}

const changeOf = (before: Entry | undefined, after: Entry | undefined): MergeConflict['ours'] => {
  if (before === undefined) return 'added';
  return after === undefined ? 'removed' : 'modified';
};

export const toConflict = (git: BenchGit, { path, base, ours, theirs }: Unmerged): MergeConflict => ({
  path: git.absolute(path),
  ours: changeOf(base, ours),
  theirs: changeOf(base, theirs),
});

/** Lines that only one side changed stay as that side has them; where lines clash, and where there are none, the side is taken. */
export async function settle(git: BenchGit, unmerged: Unmerged, side: Side): Promise<void> {
  const { path } = unmerged;
  const chosen = (await mergedByLines(git, unmerged, side)) ?? unmerged[side];
  if (chosen === undefined) {
    await git.run(['rm', '--quiet', '--force', '--', path]);
    return;
  }
  await git.run(['update-index', '--add', '--cacheinfo', `${chosen.mode},${chosen.sha},${path}`]);
  await git.run(['checkout-index', '--force', '--', path]);
}

/** Undefined for what has no lines on all three sides. */
async function mergedByLines(
  git: BenchGit,
  { path, base, ours, theirs }: Unmerged,
  side: Side,
): Promise<Entry | undefined> {
  const isFile = (entry: Entry | undefined): entry is Entry => entry?.mode.startsWith('100') === true;
  if (!isFile(base) || !isFile(ours) || !isFile(theirs)) return undefined;
  const listed = await git.run(['checkout-index', '--stage=all', '--temp', '-z', '--', path]);
  const names = listed.split('\t')[0]!.split(' ');
  const [baseFile = '', ourFile = '', theirFile = ''] = names;
  try {
    const merged = await git.try(['merge-file', `--${side}`, '--quiet', ourFile, baseFile, theirFile]);
    if (merged.exitCode !== 0) return undefined;
    const sha = await git.run(['hash-object', '-w', `--path=${path}`, ourFile]);
    return { sha, mode: ours.mode === base.mode ? theirs.mode : ours.mode };
  } finally {
    await git.discard(names);
  }
}
