import { diffTrees, findInTree, type LayeredTree, type MergePlan, type PoolCalls } from '@coppice/disks';

/** The three trees of a merge. */
export interface MergeTrees {
  readonly base: LayeredTree;
  readonly ours: LayeredTree;
  readonly theirs: LayeredTree;
}

export interface ChangedRepository {
  /** The directory `.git`; absolute, as seen inside. */
  readonly gitDir: string;
  /** Theirs has commits, branches or tags that it had not when the two parted. Otherwise there is nothing to bring. */
  readonly moved: boolean;
}

/** Where in a repository plain files are, which people edit: these are merged as files. */
const settings = /^(?:config|description|hooks|info)(?:\/|$)/;
/** What git writes without a commit, a branch or a tag being made. */
const traces = /^(?:index|logs|objects|FETCH_HEAD|ORIG_HEAD|COMMIT_EDITMSG|gc\.(?:log|pid))(?:\/|$)/;

/** The outermost directory `.git` that the path lies in; undefined for what lies in none. */
const gitDirOf = (path: string): string | undefined => {
  const at = path.indexOf('/.git/');
  return at < 0 ? undefined : path.slice(0, at + '/.git'.length);
};

/** Whether git itself wrote what is at the path: it is then never merged as a file where both sides changed the repository. */
export const isInternal = (path: string, gitDir: string): boolean =>
  path.startsWith(`${gitDir}/`) && !settings.test(path.slice(gitDir.length + 1));

/** The repositories that both sides have and that both changed since they parted. */
export async function changedRepositories(
  server: PoolCalls,
  { changes, conflicts }: Pick<MergePlan, 'changes' | 'conflicts'>,
  { base, ours, theirs }: MergeTrees,
  signal: AbortSignal,
): Promise<ChangedRepository[]> {
  const moved = new Map<string, boolean>();
  for (const { path } of [...changes, ...conflicts]) {
    const gitDir = gitDirOf(path);
    if (gitDir === undefined || !isInternal(path, gitDir)) continue;
    const isTrace = traces.test(path.slice(gitDir.length + 1));
    moved.set(gitDir, (moved.get(gitDir) ?? false) || !isTrace);
  }
  const has = async (tree: LayeredTree, gitDir: string): Promise<boolean> =>
    (await findInTree(server, tree, `${gitDir}/HEAD`))?.kind === 'file';
  const found: ChangedRepository[] = [];
  for (const [gitDir, hasMoved] of moved) {
    if (!(await has(ours, gitDir)) || !(await has(theirs, gitDir))) continue;
    for await (const { path } of diffTrees(server, base, ours, { path: gitDir, signal }))
      if (isInternal(path, gitDir)) {
        found.push({ gitDir, moved: hasMoved });
        break;
      }
  }
  return found;
}
