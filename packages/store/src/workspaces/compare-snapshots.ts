import { PackReader } from '../trees/pack-reader.ts';
import { type EntryChange, TreeDifference } from '../trees/tree-difference.ts';
import { parseTreeRoot } from '../trees/tree-root.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';
import { peekWorktree } from './worktree-scan.ts';

/** null stands for a worktree as it is now. */
export const compareSnapshots = async (
  session: WorkspaceSession,
  worktree: string,
  before: SnapshotRecord,
  after: SnapshotRecord | null,
): Promise<EntryChange[]> => {
  // A snapshot of some paths says nothing about the others.
  const only = before.partial_paths ?? after?.partial_paths ?? undefined;
  const now = after ? undefined : await peekWorktree(session, worktree);
  try {
    using reader = new PackReader(session.layout.control);
    const root = parseTreeRoot(after?.root ?? now?.root ?? '');
    return [...new TreeDifference(reader, only).between(parseTreeRoot(before.root), root)];
  } finally {
    now?.drop();
  }
};
