/** What commands write to the log by themselves; coppice-tree writes the lines of snapshots, restores and forks. */
export type WorkspaceEvent =
  | { readonly type: 'init'; readonly data: { readonly repo_id: string; readonly engine: string } }
  | {
      readonly type: 'worktree_create';
      readonly data: { readonly name: string; readonly base: null; readonly root_hash: null };
    }
  | { readonly type: 'worktree_rename'; readonly data: { readonly from: string; readonly to: string } }
  | { readonly type: 'worktree_remove'; readonly data: { readonly name: string } }
  | { readonly type: 'pin'; readonly data: { readonly snapshot_id: string; readonly reason: string } }
  | {
      readonly type: 'tags';
      readonly data: { readonly snapshot_id: string; readonly tags: readonly string[] };
    }
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
