import { statfsSync } from 'node:fs';
import { mkdir, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CopyingEngine } from '../engines/copying-engine.ts';
import type { TreeEngine } from '../engines/tree-engine.ts';
import type { PoolServer } from '../native/pool-server.ts';
import type { Pool } from './pool.ts';
import { noRoom, type PoolRoom, roomOf } from './pool-space.ts';

type CopyingName = CopyingEngine['name'];

/**
 * Disks in plain directories of the home's own filesystem, for machines where no btrfs can be mounted. What it costs: a
 * snapshot or fork takes time with the number of files, and nothing holds a disk to its size.
 */
export class DirectoryPool implements Pool {
  readonly directory: string;
  readonly engine: TreeEngine;
  readonly server: PoolServer;
  readonly space: PoolRoom;
  readonly fallback: string | undefined;
  readonly wasReadOnly = false;
  readonly #home: string;

  private constructor(home: string, server: PoolServer, engine: CopyingName, fallback: string | undefined) {
    this.#home = home;
    this.directory = join(home, 'pool');
    this.server = server;
    this.engine = new CopyingEngine(server, engine);
    this.space = new DirectorySpace(home);
    this.fallback = fallback;
  }

  /** The engine of the directories that are in a home already. */
  static async engineIn(home: string): Promise<CopyingName | undefined> {
    const text = await readFile(engineFile(home), 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    return text?.trim() === 'reflink' ? 'reflink' : text === undefined ? undefined : 'copy';
  }

  /** What the filesystem of a home can do. */
  static async bestIn(home: string, server: PoolServer): Promise<CopyingName> {
    return (await new CopyingEngine(server, 'reflink').probe(home)) ? 'reflink' : 'copy';
  }

  static async open(
    home: string,
    server: PoolServer,
    engine: CopyingName,
    fallback?: string,
  ): Promise<DirectoryPool> {
    const pool = new DirectoryPool(home, server, engine, fallback);
    await mkdir(pool.directory, { recursive: true, mode: 0o700 });
    await writeFile(engineFile(home), `${engine}\n`, { mode: 0o600 });
    return pool;
  }

  async grow(): Promise<boolean> {
    this.space.assertRoom();
    return false;
  }

  async close(): Promise<void> {
    await this.server.close();
  }

  async unmount(): Promise<void> {
    await this.server.close();
  }

  async purge(): Promise<void> {
    // Trees may be deeper than a path can name, so the helper removes them.
    await this.server.call('remove', this.#home, 'pool');
    await rm(join(this.#home, 'pool.lock'), { force: true });
    await this.server.close();
  }
}

const engineFile = (home: string): string => join(home, 'pool', '.engine');

class DirectorySpace implements PoolRoom {
  readonly isReadOnly = false;
  isFull = false;
  readonly #home: string;

  constructor(home: string) {
    this.#home = home;
  }

  assertRoom(): void {
    const room = roomOf(statfsSync(this.#home));
    this.isFull = room.freeBytes < room.marginBytes;
    if (this.isFull) throw noRoom(this.#home, room);
  }

  async freeBytes(): Promise<number> {
    const { freeBytes, marginBytes } = roomOf(await statfs(this.#home));
    return Math.max(0, freeBytes - marginBytes);
  }

  async tend(): Promise<void> {
    const { freeBytes, marginBytes } = roomOf(statfsSync(this.#home));
    this.isFull = freeBytes < marginBytes;
  }
}
