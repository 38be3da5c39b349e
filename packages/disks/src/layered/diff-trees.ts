import type { LayeredTree, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { type CompareOptions, compareTrees, type NodeChange } from './compare-trees.ts';
import { existsNowhere, resolveInTree } from './read-tree-file.ts';
import { type TreeNode, TreeView } from './tree-view.ts';

const sizeOf = (node: TreeNode | undefined): number | null =>
  node?.entry.kind === 'file' || node?.entry.kind === 'symlink' ? node.entry.sizeBytes : null;

export const toTreeChange = ({ path, change, before, after }: NodeChange): TreeChange => ({
  path: `/${path}`,
  change,
  kind: (after ?? before)!.entry.kind,
  sizeBefore: sizeOf(before),
  sizeAfter: sizeOf(after),
  modeBefore: before?.entry.mode ?? null,
  modeAfter: after?.entry.mode ?? null,
});

export interface DiffOptions extends CompareOptions {
  /** Only this, and what is below where it is a directory; absolute, as seen inside. */
  readonly path?: string;
}

/**
 * What changed from one tree to the other, file by file. A change of kind is `modified`; a change of owner or of extended attributes
 * alone is `mode`; a change of times alone is none. Take a snapshot of what runs first: a tree that moves while it is read may fail to be.
 */
export async function* diffTrees(
  server: PoolCalls,
  before: LayeredTree,
  after: LayeredTree,
  { path, ...options }: DiffOptions = {},
): AsyncGenerator<TreeChange> {
  const below = path === undefined ? {} : { below: await placeOf(server, before, after, path) };
  for await (const change of compareTrees(server, before, after, { ...options, ...below }))
    yield toTreeChange(change);
}

/** Where the path leads, as seen inside; links on the way are followed as they would be there. */
const placeOf = async (
  server: PoolCalls,
  before: LayeredTree,
  after: LayeredTree,
  path: string,
): Promise<string> => {
  for (const tree of [after, before]) {
    const node = await resolveInTree(new TreeView(server, tree), path, { followLast: false });
    if (node !== undefined) return node.path;
  }
  throw existsNowhere(path);
};
