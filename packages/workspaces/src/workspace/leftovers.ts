import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { listIntents } from './intent.ts';
import type { WorkspaceLayout } from './layout.ts';
import { NeededObjects, storedBlobs, storedPacks, storedTrees } from './stored-objects.ts';
import type { StoredRecord } from './stored-records.ts';
import type { WorkspaceState } from './workspace-state.ts';

/** Files of the store that nothing needs. */
export const leftovers = (
  layout: WorkspaceLayout,
  state: WorkspaceState,
  records: readonly StoredRecord[],
): string[] => {
  // What belongs to a command that is at work is not a leftover.
  if (listIntents(layout).length > 0) return [];
  const found = readdirSync(layout.temporary).map((name) => join(layout.temporary, name));
  const needed = new NeededObjects(layout, state.snapshots.values(), records);
  const { packs } = needed;
  for (const pack of storedPacks(layout)) if (!packs.has(pack.name)) found.push(pack.path);
  for (const blob of storedBlobs(layout)) if (!needed.blobs.has(blob.name)) found.push(blob.path);
  for (const tree of storedTrees(layout)) if (!needed.trees.has(tree)) found.push(layout.tree(tree));
  return found;
};
