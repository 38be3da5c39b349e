import type { LayeredTree, MergeConflict, MergePlan, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { type CompareOptions, compareNodes, compareTrees, type NodeChange } from './compare-trees.ts';
import { toTreeChange } from './diff-trees.ts';

/** Ends of connections and of pipes belong to the processes that made them: they are not carried over. */
const isCarried = (change: NodeChange): boolean => {
  const kind = change.after?.entry.kind;
  return kind !== 'socket' && kind !== 'fifo' && kind !== 'device';
};

const ancestors = (path: string): string[] => {
  const found: string[] = [];
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
    found.push(path.slice(0, slash));
  }
  return found;
};

/** Directories that `ours` changed something in that is there still, whichever level below. */
const changedInside = (ours: ReadonlyMap<string, NodeChange>): Map<string, NodeChange> => {
  const directories = new Map<string, NodeChange>();
  for (const change of ours.values()) {
    if (change.after === undefined) continue;
    for (const directory of ancestors(change.path)) directories.set(directory, change);
  }
  return directories;
};

/** What files take on a disk; one with several names is counted once. */
class ContentSizes {
  readonly #seen = new Set<string>();

  of({ change, after }: NodeChange): number {
    if (after?.entry.kind !== 'file' || change === 'mode') return 0;
    if (after.entry.links > 1) {
      const identity = `${after.entry.inode} ${after.layerDir}`;
      if (this.#seen.has(identity)) return 0;
      this.#seen.add(identity);
    }
    return after.entry.allocatedBytes;
  }
}

/**
 * What of the changes from `base` to `theirs` is to be done to `ours`. A path that both sides changed, differently, is a
 * conflict; so is a change below a directory that the other side removed or replaced. Nothing is written.
 */
export const planMerge = async (
  server: PoolCalls,
  base: LayeredTree,
  ours: LayeredTree,
  theirs: LayeredTree,
  options: CompareOptions = {},
): Promise<MergePlan> => {
  const ourChanges = new Map<string, NodeChange>();
  for await (const change of compareTrees(server, base, ours, options)) ourChanges.set(change.path, change);
  const busy = changedInside(ourChanges);
  const changes: TreeChange[] = [];
  const conflicts: MergeConflict[] = [];
  const skipped: string[] = [];
  const sizes = new ContentSizes();
  let changedBytes = 0;
  let conflictBytes = 0;

  for await (const theirChange of compareTrees(server, base, theirs, options)) {
    const { path } = theirChange;
    const clash = (ourChange: TreeChange['change']): void => {
      conflicts.push({ path: `/${path}`, ours: ourChange, theirs: theirChange.change });
      conflictBytes += sizes.of(theirChange);
    };
    if (!isCarried(theirChange)) {
      skipped.push(`/${path}`);
      continue;
    }
    const ourChange = ourChanges.get(path);
    if (ourChange !== undefined) {
      const difference = await compareNodes(server, ourChange.after, theirChange.after);
      if (difference === undefined) continue;
      clash(ourChange.change);
      continue;
    }
    const blocker = ancestors(path)
      .map((directory) => ourChanges.get(directory))
      .find((change) => change !== undefined && change.after?.entry.kind !== 'directory');
    const dropsDirectory =
      theirChange.before?.entry.kind === 'directory' && theirChange.after?.entry.kind !== 'directory';
    if (blocker !== undefined) clash(blocker.change);
    else if (dropsDirectory && busy.has(path)) clash('modified');
    else {
      changes.push(toTreeChange(theirChange));
      changedBytes += sizes.of(theirChange);
    }
  }
  return { changes, conflicts, skipped, changedBytes, conflictBytes };
};
