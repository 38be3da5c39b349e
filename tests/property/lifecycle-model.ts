import { type Files, type ModelMerge, mergeFiles } from './file-model.ts';

export interface ModelSandbox {
  running: boolean;
  files: Files;
  /** The snapshot that its disk last was. */
  base: string | null;
  /** The snapshot that it grew from. */
  readonly grewFrom: string | null;
}

export interface ModelSnapshot {
  readonly files: Files;
  readonly sandbox: string;
  readonly automatic: boolean;
  parent: string | null;
}

/** Sandboxes, snapshots and what grew from what, in memory. */
export class LifecycleModel {
  readonly sandboxes = new Map<string, ModelSandbox>();
  readonly snapshots = new Map<string, ModelSnapshot>();

  created(id: string): void {
    this.sandboxes.set(id, { running: true, files: new Map(), base: null, grewFrom: null });
  }

  snapshotted(sandbox: string, id: string, automatic = false): void {
    const record = this.sandboxes.get(sandbox)!;
    this.snapshots.set(id, { files: record.files, sandbox, automatic, parent: record.base });
    record.base = id;
  }

  forked(snapshot: string, id: string): void {
    const { files } = this.snapshots.get(snapshot)!;
    this.sandboxes.set(id, { running: true, files, base: snapshot, grewFrom: snapshot });
  }

  restored(sandbox: string, snapshot: string): void {
    const record = this.sandboxes.get(sandbox)!;
    record.files = this.snapshots.get(snapshot)!.files;
    record.base = snapshot;
  }

  mayRestore(sandbox: string, snapshot: string): boolean {
    return (
      this.snapshots.get(snapshot)!.sandbox === sandbox || this.sandboxes.get(sandbox)!.grewFrom === snapshot
    );
  }

  isNeeded(snapshot: string): boolean {
    return [...this.sandboxes.values()].some(({ grewFrom }) => grewFrom === snapshot);
  }

  /** Whoever stood on it stands on what it stood on. */
  deleted(snapshot: string): void {
    const { parent } = this.snapshots.get(snapshot)!;
    this.snapshots.delete(snapshot);
    for (const other of this.snapshots.values()) if (other.parent === snapshot) other.parent = parent;
    for (const sandbox of this.sandboxes.values()) if (sandbox.base === snapshot) sandbox.base = parent;
  }

  /** A snapshot that was taken for forks alone goes with the last of them. */
  destroyed(id: string): void {
    const { grewFrom } = this.sandboxes.get(id)!;
    this.sandboxes.delete(id);
    if (grewFrom !== null && this.snapshots.get(grewFrom)?.automatic && !this.isNeeded(grewFrom))
      this.deleted(grewFrom);
  }

  commonAncestor(into: string, from: string): string | null {
    const theirs = new Set(this.#history(from));
    return this.#history(into).find((id) => theirs.has(id)) ?? null;
  }

  merge(into: string, from: string, prefer: 'ours' | 'theirs' | undefined): ModelMerge {
    const base = this.commonAncestor(into, from);
    const baseFiles = base === null ? new Map<string, string>() : this.snapshots.get(base)!.files;
    return mergeFiles(baseFiles, this.sandboxes.get(into)!.files, this.sandboxes.get(from)!.files, prefer);
  }

  #history(sandbox: string): string[] {
    const ids: string[] = [];
    for (let id = this.sandboxes.get(sandbox)!.base; id !== null; id = this.snapshots.get(id)?.parent ?? null)
      ids.push(id);
    return ids;
  }
}
