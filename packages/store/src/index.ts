// Disks of sandboxes
export type { DiskStore, DiskUsage } from './disk-store.ts';
export { createDiskStore, type DiskStoreOptions } from './disks/engine-disk-store.ts';
export { BtrfsEngine } from './engines/btrfs-engine.ts';
export { CopyingEngine } from './engines/copying-engine.ts';
export type { CloneOptions, TreeCounter, TreeEngine } from './engines/tree-engine.ts';
export { type ApplyMergeOptions, applyMerge } from './layered/apply-merge.ts';
export { diffTrees } from './layered/diff-trees.ts';
export { FileContent, type FilePiece } from './layered/file-content.ts';
export { planMerge } from './layered/plan-merge.ts';
export { openTreeFile, readTreeFile } from './layered/read-tree-file.ts';
export { TextDiffer } from './layered/text-differ.ts';
export type { NodeAttributes, TreeWriter } from './layered/tree-writer.ts';
export { type UnifiedDiff, unifiedDiff } from './layered/unified-diff.ts';
export { UpperWriter } from './layered/upper-writer.ts';
export type { LayeredTree, MergeConflict, MergePlan, TreeChange } from './layered-tree.ts';
export { type PoolCalls, PoolServer, type PoolServerOptions } from './native/pool-server.ts';
export { type ParcelCount, type ParcelKind, Parcels } from './parcels/parcel.ts';
export { openPool, type Pool, type PoolOptions } from './pool/pool.ts';
