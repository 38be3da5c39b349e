import type { LayeredTree, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { type CompareOptions, compareTrees, type NodeChange } from './compare-trees.ts';
import type { TreeNode } from './tree-view.ts';

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

/**
 * What changed from one tree to the other, file by file. A change of kind is `modified`; a change of owner or of extended attributes
 * alone is `mode`; a change of times alone is none. Take a snapshot of what runs first: a tree that moves while it is read may fail to be.
 */
export async function* diffTrees(
  server: PoolCalls,
  before: LayeredTree,
  after: LayeredTree,
  options: CompareOptions = {},
): AsyncGenerator<TreeChange> {
  for await (const change of compareTrees(server, before, after, options)) yield toTreeChange(change);
}
