import type { LogLine } from './event-log.ts';
import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';

/** What the log adds up to. */
export class WorkspaceState {
  /** Oldest first. */
  readonly snapshots = new Map<string, SnapshotRecord>();
  readonly worktrees = new Map<string, WorktreeRecord>();
  readonly pins = new Map<string, string>();
  /** A collection whose snapshots are gone from history, but whose space is not freed yet. */
  unfinishedCollection: { readonly planId: string; readonly pid: number } | undefined;

  add(lines: readonly LogLine[]): void {
    for (const line of lines) this.#apply(line);
  }

  #change(name: string, change: Partial<WorktreeRecord>): void {
    const worktree = this.worktrees.get(name);
    if (worktree) this.worktrees.set(name, { ...worktree, ...change });
  }

  #apply(line: LogLine): void {
    switch (line.type) {
      case 'snapshot': {
        const { snapshot, saved_root_hash } = line.data;
        const id = snapshot.snapshot_id;
        this.snapshots.set(id, snapshot);
        this.#change(snapshot.worktree_name, {
          head_snapshot_id: id,
          latest_snapshot_id: id,
          ...(saved_root_hash ? { saved_root_hash } : {}),
        });
        break;
      }
      case 'restore':
        this.#change(line.data.worktree, {
          head_snapshot_id: line.data.snapshot_id,
          saved_root_hash: line.data.root_hash,
        });
        break;
      case 'worktree_create':
        this.worktrees.set(line.data.name, {
          name: line.data.name,
          created_at: line.at,
          base_snapshot_id: line.data.base,
          head_snapshot_id: line.data.base,
          latest_snapshot_id: null,
          saved_root_hash: line.data.root_hash,
        });
        break;
      case 'worktree_rename': {
        const worktree = this.worktrees.get(line.data.from);
        if (!worktree) break;
        this.worktrees.delete(line.data.from);
        this.worktrees.set(line.data.to, { ...worktree, name: line.data.to });
        for (const [id, snapshot] of this.snapshots) {
          if (snapshot.worktree_name === line.data.from) {
            this.snapshots.set(id, { ...snapshot, worktree_name: line.data.to });
          }
        }
        break;
      }
      case 'worktree_remove':
        this.worktrees.delete(line.data.name);
        break;
      case 'pin':
        this.pins.set(line.data.snapshot_id, line.data.reason);
        break;
      case 'unpin':
        this.pins.delete(line.data.snapshot_id);
        break;
      case 'gc_mark':
        for (const id of line.data.snapshots) this.snapshots.delete(id);
        this.unfinishedCollection = { planId: line.data.plan_id, pid: line.data.pid };
        break;
      case 'gc_done':
        this.unfinishedCollection = undefined;
        break;
      case 'init':
      case 'repair':
        break;
    }
  }
}
