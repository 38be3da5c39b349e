import { PackReader } from '../trees/pack-reader.ts';
import { type EntryChange, TreeDifference } from '../trees/tree-difference.ts';
import { parseTreeRoot } from '../trees/tree-root.ts';
import { peekWorktree } from './peek-worktree.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/** null stands for a worktree as it is now; before it, for one that holds nothing. */
export const compareSnapshots = async (
  session: WorkspaceSession,
  worktree: string,
  before: SnapshotRecord | null,
  after: SnapshotRecord | null,
): Promise<EntryChange[]> => {
  // A snapshot of some paths says nothing about the others.
  const only = before?.partial_paths ?? after?.partial_paths ?? undefined;
  const compare = (root: string): EntryChange[] => {
    using reader = new PackReader(session.layout.control);
    return [
      ...new TreeDifference(reader, only).between(
        before ? parseTreeRoot(before.root) : undefined,
        parseTreeRoot(root),
      ),
    ];
  };
  return after ? compare(after.root) : peekWorktree(session, worktree, ({ root }) => compare(root));
};
