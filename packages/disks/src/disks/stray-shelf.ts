import { existsSync } from 'node:fs';
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { DiskStore } from '../disk-store.ts';
import type { TreeEngine } from '../engines/tree-engine.ts';
import type { PoolServer } from '../native/pool-server.ts';
import { checkId } from './disk-names.ts';

export interface Stray {
  readonly id: string;
  /** The writable disk of a sandbox, or a snapshot. */
  readonly kind: 'disk' | 'snapshot';
}

export interface StrayShelfParts {
  readonly server: PoolServer;
  readonly engine: TreeEngine;
  readonly disks: DiskStore;
  /** Of the pool; strays lie in `strays` below it. */
  readonly directory: string;
}

/**
 * Disks and snapshots that nobody knows, and that nobody should delete unasked. Each lies in a directory of its own name, as
 * `disk` or `snapshot`, with the memory of a checkpoint beside it as `memory`.
 */
export class StrayShelf {
  readonly #parts: StrayShelfParts;
  readonly #directory: string;

  constructor(parts: StrayShelfParts) {
    this.#parts = parts;
    this.#directory = join(parts.directory, 'strays');
  }

  /** Says whether there was anything to keep: a tree without a file is removed. */
  async put(id: string): Promise<boolean> {
    const { disks, engine, server } = this.#parts;
    const [disk, snapshot, memory] = [disks.diskDir(id), disks.snapshotDir(id), disks.memoryDir(id)];
    if ((await isEmpty(disk)) && (await isEmpty(snapshot))) {
      await disks.removeDisk(id);
      await disks.removeSnapshot(id);
      return false;
    }
    await mkdir(this.#place(id), { recursive: true, mode: 0o700 });
    if (existsSync(disk)) await engine.move(disk, join(this.#place(id), 'disk'));
    if (existsSync(snapshot)) await engine.move(snapshot, join(this.#place(id), 'snapshot'));
    if (existsSync(memory)) await server.call('rename', memory, join(this.#place(id), 'memory'));
    return true;
  }

  async list(): Promise<Stray[]> {
    if (!existsSync(this.#directory)) return [];
    const ids = (await readdir(this.#directory)).sort();
    return ids.map((id) => ({ id, kind: existsSync(join(this.#place(id), 'disk')) ? 'disk' : 'snapshot' }));
  }

  /** Where the memory of strays lies; some have none. */
  async memoryDirs(): Promise<string[]> {
    return (await this.list()).map(({ id }) => join(this.#place(id), 'memory')).filter(existsSync);
  }

  /** Its files become the snapshot; the stray stays until it is removed. */
  async copyTo({ id, kind }: Stray, snapshotId: string): Promise<void> {
    const { disks, engine } = this.#parts;
    await disks.makeRoom();
    await engine.clone(join(this.#place(id), kind), disks.snapshotDir(snapshotId), { readOnly: true });
  }

  /** Absent is fine. */
  async remove(id: string): Promise<void> {
    const { engine } = this.#parts;
    for (const kind of ['disk', 'snapshot', 'memory']) await engine.remove(join(this.#place(id), kind));
    await rmdir(this.#place(id)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
  }

  #place(id: string): string {
    return join(this.#directory, checkId(id));
  }
}

/** Also where there is no tree at all. */
const isEmpty = async (tree: string): Promise<boolean> => {
  try {
    return (await readdir(join(tree, 'upper'))).length === 0;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
    throw error;
  }
};
