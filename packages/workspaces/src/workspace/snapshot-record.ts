export const engineNames = ['btrfs', 'juicefs-clone', 'reflink-copy', 'copy'] as const;
export type EngineName = (typeof engineNames)[number];

export const isEngineName = (name: unknown): name is EngineName =>
  (engineNames as readonly unknown[]).includes(name);

/** One snapshot, as the log holds it and as `--json` prints it. */
export interface SnapshotRecord {
  readonly snapshot_id: string;
  readonly parent_id: string | null;
  readonly worktree_name: string;
  readonly created_at: string;
  readonly note: string;
  readonly tags: readonly string[];
  readonly engine: EngineName;
  /** What was asked for, where that could not be had. */
  readonly requested_engine: EngineName | null;
  /** `objects`: contents in packs and blobs. `tree`: a whole directory, cloned by the filesystem. */
  readonly storage: 'objects' | 'tree';
  readonly payload_root_hash: string;
  /** Where the top of the tree is stored: hash:pack:offset:length. */
  readonly root: string;
  /** Only these paths are in it; null: all of the worktree. */
  readonly partial_paths: readonly string[] | null;
  /** Taken by a restore, to keep what was not saved. */
  readonly automatic: boolean;
  readonly files: number;
  readonly bytes: number;
  readonly new_bytes: number;
}

export interface WorktreeRecord {
  readonly name: string;
  readonly created_at: string;
  /** What it grew from. */
  readonly base_snapshot_id: string | null;
  /** What it was last saved as, or restored to. */
  readonly head_snapshot_id: string | null;
  /** The newest snapshot that was taken in it. */
  readonly latest_snapshot_id: string | null;
  /** The hash of the worktree when all of it was last known to be stored. */
  readonly saved_root_hash: string | null;
  /** What undo and redo bring back: head and saved_root_hash before the last restore, and before the last undo. */
  readonly undo: Step | null;
  readonly redo: Step | null;
}

interface Step {
  readonly snapshot_id: string;
  readonly root_hash: string;
}
