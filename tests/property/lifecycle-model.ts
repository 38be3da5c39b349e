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
  /** Taken for forks, or to be where the next merge starts: goes with the last that needs it. */
  readonly automatic: boolean;
  /** Of what was there before a merge or a restore; the newest few of a sandbox stay. */
  readonly isUndo: boolean;
  parent: string | null;
}

/** Sandboxes, snapshots and what grew from what, in memory. */
export class LifecycleModel {
  readonly sandboxes = new Map<string, ModelSandbox>();
  readonly snapshots = new Map<string, ModelSnapshot>();
  /** Of each sandbox or snapshot: the snapshots that were merged into it. */
  readonly #merged = new Map<string, Set<string>>();
  readonly #mergePoints = new Set<string>();
  readonly #undosKept: number;

  constructor(undosKept: number) {
    this.#undosKept = undosKept;
  }

  created(id: string): void {
    this.sandboxes.set(id, { running: true, files: new Map(), base: null, grewFrom: null });
  }

  snapshotted(sandbox: string, id: string, { automatic = false, isUndo = false } = {}): void {
    const record = this.sandboxes.get(sandbox)!;
    this.snapshots.set(id, { files: record.files, sandbox, automatic, isUndo, parent: record.base });
    record.base = id;
    this.#merged.set(id, this.#mergedInto(sandbox));
    this.#merged.delete(sandbox);
  }

  forked(snapshot: string, id: string): void {
    const { files } = this.snapshots.get(snapshot)!;
    this.sandboxes.set(id, { running: true, files, base: snapshot, grewFrom: snapshot });
  }

  restored(sandbox: string, snapshot: string, undo: string | null): void {
    if (undo !== null) this.snapshotted(sandbox, undo, { automatic: true, isUndo: true });
    const record = this.sandboxes.get(sandbox)!;
    record.files = this.snapshots.get(snapshot)!.files;
    record.base = snapshot;
    this.#merged.delete(sandbox);
    this.#prune();
  }

  mayRestore(sandbox: string, snapshot: string): boolean {
    return (
      this.snapshots.get(snapshot)!.sandbox === sandbox || this.sandboxes.get(sandbox)!.grewFrom === snapshot
    );
  }

  isNeeded(snapshot: string): boolean {
    const grown = [...this.sandboxes.values()].some(({ grewFrom }) => grewFrom === snapshot);
    return grown || this.#startsMerge(snapshot);
  }

  deleted(snapshot: string): void {
    this.#remove(snapshot);
    this.#prune();
  }

  /** A snapshot that was taken for forks alone goes with the last of them. */
  destroyed(id: string): void {
    const { grewFrom } = this.sandboxes.get(id)!;
    this.sandboxes.delete(id);
    this.#merged.delete(id);
    const source = grewFrom === null ? undefined : this.snapshots.get(grewFrom);
    if (source?.automatic && !source.isUndo && !this.isNeeded(grewFrom!)) this.#remove(grewFrom!);
    this.#prune();
  }

  /** The newest that both have in their history; ids grow with time. */
  commonAncestor(into: string, from: string): string | null {
    const theirs = this.#ancestors(from);
    const common = [...this.#ancestors(into)].filter((id) => theirs.has(id));
    return common.sort().at(-1) ?? null;
  }

  merge(into: string, from: string, prefer: 'ours' | 'theirs' | undefined): ModelMerge {
    const base = this.commonAncestor(into, from);
    const baseFiles = base === null ? new Map<string, string>() : this.snapshots.get(base)!.files;
    return mergeFiles(baseFiles, this.sandboxes.get(into)!.files, this.sandboxes.get(from)!.files, prefer);
  }

  /** `point`: the snapshot of what was merged, where the next merge starts. `undo`: of what was there before, if any changed. */
  merged(into: string, from: string, point: string, undo: string | null, files: Files): void {
    this.snapshotted(from, point, { automatic: true });
    this.#mergePoints.add(point);
    if (undo !== null) this.snapshotted(into, undo, { automatic: true, isUndo: true });
    const before = this.#ancestors(point);
    this.#merged.set(
      into,
      new Set([...this.#mergedInto(into)].filter((id) => !before.has(id)).concat(point)),
    );
    this.sandboxes.get(into)!.files = files;
    this.#prune();
  }

  #mergedInto(holder: string): Set<string> {
    return this.#merged.get(holder) ?? new Set();
  }

  #ancestors(id: string): Set<string> {
    const found = new Set<string>();
    const pending = [id];
    for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
      if (found.has(at)) continue;
      const snapshot = this.snapshots.get(at);
      if (snapshot !== undefined) found.add(at);
      const before = snapshot === undefined ? this.sandboxes.get(at)?.base : snapshot.parent;
      if (before != null) pending.push(before);
      pending.push(...this.#mergedInto(at));
    }
    return found;
  }

  #startsMerge(snapshot: string): boolean {
    const record = this.snapshots.get(snapshot)!;
    if (![...this.#merged.values()].some((ids) => ids.has(snapshot))) return false;
    const hasChildren = [...this.snapshots.values()].some(({ parent }) => parent === snapshot);
    return this.sandboxes.has(record.sandbox) || hasChildren;
  }

  /** Whoever stood on it stands on what it stood on, and has taken in what it had. */
  #remove(snapshot: string): void {
    const { parent } = this.snapshots.get(snapshot)!;
    const had = this.#mergedInto(snapshot);
    const bequeath = (heir: string) => this.#merged.set(heir, new Set([...this.#mergedInto(heir), ...had]));
    this.snapshots.delete(snapshot);
    for (const [id, other] of this.snapshots)
      if (other.parent === snapshot) {
        other.parent = parent;
        bequeath(id);
      }
    for (const [id, sandbox] of this.sandboxes)
      if (sandbox.base === snapshot) {
        sandbox.base = parent;
        bequeath(id);
      }
    this.#merged.delete(snapshot);
    for (const ids of this.#merged.values()) ids.delete(snapshot);
    this.#mergePoints.delete(snapshot);
  }

  /** Until nothing is left that may go. */
  #prune(): void {
    for (;;) {
      const [idle] = [...this.snapshots.keys()].filter((id) => this.#isIdle(id));
      if (idle === undefined) return;
      this.#remove(idle);
    }
  }

  #isIdle(id: string): boolean {
    if (this.isNeeded(id)) return false;
    if (this.#mergePoints.has(id)) return true;
    const { isUndo, sandbox } = this.snapshots.get(id)!;
    if (!isUndo) return false;
    const heirs =
      [...this.snapshots.values()].filter(({ parent }) => parent === id).length +
      [...this.sandboxes.values()].filter(({ base }) => base === id).length;
    return heirs < 2 && !(this.sandboxes.has(sandbox) && this.#newestUndos(sandbox).includes(id));
  }

  #newestUndos(sandbox: string): string[] {
    const undos = [...this.snapshots].filter(([, one]) => one.isUndo && one.sandbox === sandbox);
    return undos
      .map(([id]) => id)
      .sort()
      .slice(-this.#undosKept);
  }
}
