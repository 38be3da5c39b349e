import type { SnapshotRecord } from './snapshot-record.ts';

/** What can happen to a workspace. */
export type WorkspaceEvent =
  | { readonly type: 'init'; readonly data: { readonly repo_id: string; readonly engine: string } }
  | {
      readonly type: 'snapshot';
      readonly data: { readonly snapshot: SnapshotRecord; readonly saved_root_hash: string | null };
    }
  | {
      readonly type: 'restore';
      readonly data: {
        readonly worktree: string;
        readonly snapshot_id: string;
        readonly root_hash: string;
        readonly paths: readonly string[] | null;
      };
    }
  | {
      readonly type: 'worktree_create';
      readonly data: {
        readonly name: string;
        readonly base: string | null;
        readonly root_hash: string | null;
      };
    }
  | { readonly type: 'worktree_rename'; readonly data: { readonly from: string; readonly to: string } }
  | { readonly type: 'worktree_remove'; readonly data: { readonly name: string } }
  | { readonly type: 'pin'; readonly data: { readonly snapshot_id: string; readonly reason: string } }
  | { readonly type: 'unpin'; readonly data: { readonly snapshot_id: string } }
  | {
      readonly type: 'gc_mark';
      readonly data: {
        readonly plan_id: string;
        readonly snapshots: readonly string[];
        readonly pid: number;
      };
    }
  | { readonly type: 'gc_done'; readonly data: { readonly plan_id: string; readonly freed_bytes: number } }
  | { readonly type: 'repair'; readonly data: { readonly what: string } };
