/** What `jvs` and programs use of versioned workspaces. Apart from the store's other parts, so that it loads quickly. */

export { pathBytes, pathText } from './trees/path-text.ts';
export type { EntryChange } from './trees/tree-difference.ts';
export { treeFailure } from './trees/tree-program.ts';
export { adoptDirectory } from './workspace/adopt-directory.ts';
export type { CollectionPlan, CollectionResult } from './workspace/collect-garbage.ts';
export { createWorkspace } from './workspace/create-workspace.ts';
export { destroyWorkspace } from './workspace/destroy-workspace.ts';
export type { Examination } from './workspace/examine-workspace.ts';
export type { Finding } from './workspace/finding.ts';
export { describeSnapshot, shortId } from './workspace/resolve-reference.ts';
export type { RestoreOutcome } from './workspace/restore-worktree.ts';
export { checkSettingKey, readSettings, writeSetting } from './workspace/settings.ts';
export { engineNames, type SnapshotRecord, type WorktreeRecord } from './workspace/snapshot-record.ts';
export type { StoredEntry, StoredTree } from './workspace/stored-tree.ts';
export { textPatch } from './workspace/text-patch.ts';
export type { VerifyReport } from './workspace/verify-snapshots.ts';
export { Workspace } from './workspace/workspace.ts';
