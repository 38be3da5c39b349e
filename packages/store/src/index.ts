// Disks of sandboxes
export type { DiskStore, DiskUsage } from './disk-store.ts';
export { createDiskStore, type DiskStoreOptions } from './disks/engine-disk-store.ts';
export { BtrfsEngine } from './engines/btrfs-engine.ts';
export { CopyingEngine } from './engines/copying-engine.ts';
export type { CloneOptions, TreeCounter, TreeEngine } from './engines/tree-engine.ts';
export { PoolServer, type PoolServerOptions } from './native/pool-server.ts';
export { openPool, type Pool, type PoolOptions } from './pool/pool.ts';
