import type { DiskUsage } from '../disk-store.ts';

export interface CreateOptions {
  /** Its name beside its own until it is whole. */
  readonly draft?: string;
  /** Directories that stand in it from the beginning. */
  readonly directories?: readonly string[];
  /** What may be written through it; only for engines with a counter. */
  readonly limitBytes?: number;
}

export interface CloneOptions {
  /** Gives up a clone that takes long; half of it is left then, as with any failure. */
  readonly signal?: AbortSignal | undefined;
  /** Where the engine can, nobody can change the clone from its first instant on. */
  readonly readOnly: boolean;
  /** What may be written through the clone; only for engines with a counter. */
  readonly limitBytes?: number;
}

export interface TreeCount {
  /** Of this tree alone, whatever it is called; never given to another. */
  readonly identity: string;
  /** What was written through it and is still there, in itself or in a clone of it. */
  readonly writtenBytes: number;
  readonly limitBytes: number;
}

/** The kernel's own count of what is written through a tree. */
export interface TreeCounter {
  /** `fresh` waits until all that was written is counted. */
  read(directory: string, options: { fresh: boolean }): Promise<TreeCount>;
  /** What was written through each of these trees and is still on the filesystem, also after the tree itself is gone. */
  written(directory: string, identities: readonly string[]): Promise<number[]>;
  /** Writing beyond it fails at once with "disk quota exceeded". */
  limit(directory: string, limitBytes: number): Promise<void>;
}

/** How whole directory trees are made, cloned and removed on one kind of filesystem. */
export interface TreeEngine {
  readonly name: 'btrfs' | 'reflink' | 'copy';
  /** A clone appears whole under its name or not at all; otherwise the caller clones to a temporary name and renames. */
  readonly atomicClone: boolean;
  /** Only where sizes can be enforced. */
  readonly counter: TreeCounter | undefined;
  /** Whether trees can be kept in this directory, which exists. */
  probe(directory: string): Promise<boolean>;
  /** A tree with nothing else in it; its parent exists. Returns its identity where there is a counter. */
  create(directory: string, options?: CreateOptions): Promise<string | undefined>;
  /**
   * The target does not exist; modes, owners, times, attributes, links, holes and odd files are as in the source. Returns the
   * identity of the clone where there is a counter.
   */
  clone(source: string, target: string, options: CloneOptions): Promise<string | undefined>;
  /** To another place of the same filesystem, where nothing is; one that nobody can change stays so. */
  move(directory: string, target: string): Promise<void>;
  /** What was made, moved and removed at this place is so after a loss of power too. */
  commit(place: string): Promise<void>;
  /** Absent is fine. */
  remove(directory: string): Promise<void>;
  /** Measured file by file: what it takes grows with the tree. */
  usage(directory: string): Promise<DiskUsage>;
}
