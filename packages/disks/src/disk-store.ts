/**
 * The port for the disks of sandboxes: directories with `upper` and `work` that are snapshotted and cloned whole.
 * testkit/src/disk-store-conformance.ts holds the promises made here, on every engine.
 */
export interface DiskUsage {
  /** What the tree holds if one copied it out. Where the kernel counts, data that was deleted but lives on in a snapshot may count until the next review. */
  readonly referencedBytes: number;
  /** What it added to the pool: written since the snapshot that it, or its disk, grew from or was last snapshotted to. */
  readonly usedBytes: number;
}

export interface CopyOptions {
  /** Where the engine copies, which takes long: gives up, and nothing is left of it. */
  readonly signal?: AbortSignal | undefined;
}

export interface DiskStore {
  readonly engine: 'btrfs' | 'reflink' | 'copy';
  /** Whether a disk is held to its size; otherwise sizes are advice. */
  readonly holdsSizes: boolean;
  diskDir(diskId: string): string;
  snapshotDir(snapshotId: string): string;
  /** Where memory images of checkpoints live; same filesystem as the disks. */
  memoryDir(snapshotId: string): string;

  /** Refuses with no_space where nothing can be added now; each of the calls below that adds something asks it first. */
  makeRoom(): Promise<void>;
  createDisk(diskId: string, sizeBytes: number): Promise<void>;
  cloneDisk(snapshotId: string, diskId: string, sizeBytes: number, options?: CopyOptions): Promise<void>;
  /** The disk becomes what the snapshot holds, in one step; the sandbox is stopped or frozen out of it. A crash leaves the old or the new one. */
  replaceDisk(diskId: string, snapshotId: string, sizeBytes: number, options?: CopyOptions): Promise<void>;
  /** Disks that were made and replaced before are so after a loss of power too, and so is what was written to this one. */
  settle(diskId?: string): Promise<void>;
  /** Immutable from its first instant; the caller froze the sandbox where it runs. */
  snapshotDisk(diskId: string, snapshotId: string, options?: CopyOptions): Promise<void>;
  /** Idempotent, all of them. */
  removeDisk(diskId: string): Promise<void>;
  removeSnapshot(snapshotId: string): Promise<void>;
  resizeDisk(diskId: string, sizeBytes: number): Promise<void>;
  /**
   * Gives disks near their limit back what they deleted since; to be called every few seconds. Cheap for the others.
   */
  reviewLimits(): Promise<void>;

  /**
   * What may still be written to the disk, by its size and by the room of the pool. What it deleted may count until it is
   * measured, which is done where less than `wantedBytes` seem to be left.
   */
  roomBytes(diskId: string, wantedBytes: number): Promise<number>;
  diskUsage(diskId: string): Promise<DiskUsage>;
  snapshotUsage(snapshotId: string): Promise<DiskUsage>;
  /**
   * What was written through the disk and is still on the pool, in the disk or in these snapshots of it, each byte once. Right
   * after a snapshot was taken this is what the snapshots hold. Where the kernel does not count, each snapshot counts whole.
   */
  writtenBytes(diskId: string, snapshotIds: readonly string[]): Promise<number>;
  /**
   * Lets the memory of a snapshot share every page that the memory of the other one has too; what it holds stays the same.
   * Where the engine's files cannot share blocks, nothing happens.
   */
  shareMemory(snapshotId: string, withSnapshotId: string): Promise<void>;
  /** `usedBytes`: what no other file shares. */
  memoryUsage(snapshotId: string): Promise<DiskUsage>;
  /** What is on the pool, half-made things included, for recovery. */
  list(): Promise<{ disks: string[]; snapshots: string[] }>;
  freeBytes(): Promise<number>;
  close(): Promise<void>;
}
