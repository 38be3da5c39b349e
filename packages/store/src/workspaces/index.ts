/** What `jvs` and programs use of versioned workspaces. Apart from the store's other parts, so that it loads quickly. */

export { pathBytes, pathText } from '../trees/path-text.ts';
export type { EntryChange } from '../trees/tree-difference.ts';
export { treeFailure } from '../trees/tree-program.ts';
export { adoptDirectory } from './adopt-directory.ts';
export type { CollectionPlan, CollectionResult } from './collect-garbage.ts';
export { createWorkspace } from './create-workspace.ts';
export { destroyWorkspace } from './destroy-workspace.ts';
export type { Examination } from './examine-workspace.ts';
export type { Finding } from './finding.ts';
export { describeSnapshot, shortId } from './resolve-reference.ts';
export type { RestoreOutcome } from './restore-worktree.ts';
export { checkSettingKey, readSettings, writeSetting } from './settings.ts';
export { engineNames, type SnapshotRecord, type WorktreeRecord } from './snapshot-record.ts';
export type { StoredEntry, StoredTree } from './stored-tree.ts';
export { textPatch } from './text-patch.ts';
export type { VerifyReport } from './verify-snapshots.ts';
export { Workspace } from './workspace.ts';
