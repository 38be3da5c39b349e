/** What `jvs` and programs use of versioned workspaces. Apart from the store's other parts, so that it loads quickly. */
export { InheritedProgram } from '../trees/inherited-program.ts';
export type { EntryChange } from '../trees/tree-difference.ts';
export type { CollectionPlan, CollectionResult } from './collect-garbage.ts';
export type { Examination, Finding } from './examine-workspace.ts';
export { describeSnapshot, shortId } from './resolve-reference.ts';
export { checkSettingKey, readSettings, writeSetting } from './settings.ts';
export { engineNames, type SnapshotRecord, type WorktreeRecord } from './snapshot-record.ts';
export type { VerifyReport } from './verify-snapshots.ts';
export { createWorkspace, Workspace } from './workspace.ts';
