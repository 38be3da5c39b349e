import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { PackReader } from '../trees/pack-reader.ts';
import { blobPack, nowhere } from '../trees/tree-node.ts';
import { type NodeLocation, parseTreeRoot } from '../trees/tree-root.ts';
import type { WorkspaceLayout } from './layout.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { StoredRecord } from './stored-records.ts';

export interface Range {
  readonly from: number;
  readonly to: number;
}

/** What a set of snapshots needs of the store. */
export class NeededObjects {
  readonly blobs = new Set<string>();
  readonly trees = new Set<string>();
  readonly #ranges = new Map<string, Map<number, number>>();
  readonly #reader: PackReader;

  /** `records` are those of all packs; of snapshots that are not among `snapshots` they are not needed. */
  constructor(
    layout: WorkspaceLayout,
    snapshots: Iterable<SnapshotRecord>,
    records: readonly StoredRecord[],
  ) {
    this.#reader = new PackReader(layout.control);
    const kept = new Set<string>();
    try {
      for (const snapshot of snapshots) {
        if (snapshot.storage === 'tree') this.trees.add(snapshot.snapshot_id);
        this.#addNode(parseTreeRoot(snapshot.root));
        kept.add(snapshot.snapshot_id);
      }
      for (const { snapshot_id: id, pack, offset, length } of records)
        if (kept.has(id)) this.#addRange(pack, offset, length);
    } finally {
      this.#reader[Symbol.dispose]();
    }
  }

  get packs(): Set<string> {
    return new Set(this.#ranges.keys());
  }

  /** Answers whether it was there already. */
  #addRange(pack: string, offset: number, length: number): boolean {
    let ranges = this.#ranges.get(pack);
    if (!ranges) {
      ranges = new Map();
      this.#ranges.set(pack, ranges);
    }
    const known = ranges.has(offset);
    ranges.set(offset, Math.max(ranges.get(offset) ?? 0, length));
    return known;
  }

  #addNode(at: NodeLocation): void {
    if (this.#addRange(at.pack, at.offset, at.length)) return;
    for (const entry of this.#reader.readNode(at)) {
      const { location } = entry;
      if (entry.type === 'd') this.#addNode(location);
      if (entry.type !== 'f') continue;
      // Wherever it is said to be: no hash covers that.
      this.blobs.add(entry.hash);
      if (location.pack !== nowhere && location.pack !== blobPack)
        this.#addRange(location.pack, location.offset, entry.size);
    }
  }

  /** The parts of a pack that nothing needs. */
  unneeded(pack: string, size: number): Range[] {
    const needed = [...(this.#ranges.get(pack) ?? new Map<number, number>())].sort(([a], [b]) => a - b);
    const free: Range[] = [];
    let at = 0;
    for (const [offset, length] of needed) {
      if (offset > at) free.push({ from: at, to: offset });
      at = Math.max(at, offset + length);
    }
    if (size > at) free.push({ from: at, to: size });
    return free;
  }
}

export interface StoredFile {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

const filesIn = (folder: string, suffix: string): StoredFile[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(suffix))
    .map((name) => {
      const path = join(folder, name);
      return { name: name.slice(0, name.length - suffix.length), path, bytes: statSync(path).blocks * 512 };
    });

export const storedPacks = (layout: WorkspaceLayout): StoredFile[] => filesIn(layout.packs, '.pack');

export const storedBlobs = (layout: WorkspaceLayout): StoredFile[] =>
  readdirSync(layout.blobs).flatMap((folder) => filesIn(join(layout.blobs, folder), ''));

export const storedTrees = (layout: WorkspaceLayout): string[] =>
  readdirSync(layout.trees).filter((name) => !name.endsWith('.index'));
