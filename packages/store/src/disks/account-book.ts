import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { PoolServer } from '../native/pool-server.ts';

/** What the kernel's counter of a disk has to be read with. Kept outside of the disk, which may be full. */
export interface DiskAccount {
  readonly sizeBytes: number;
  /** What the disk holds that was not written through it; below zero when part of what it wrote lives on in snapshots only. */
  readonly inheritedBytes: number;
  /** What had been written through it when it was last snapshotted. */
  readonly snapshottedBytes: number;
}

/** Kept outside of the snapshot, which cannot be written. It can be made again by measuring. */
export interface SnapshotAccount {
  readonly heldBytes: number;
  readonly addedBytes: number;
}

const diskFields = ['sizeBytes', 'inheritedBytes', 'snapshottedBytes'] as const;
const snapshotFields = ['heldBytes', 'addedBytes'] as const;

/** By what the tree is, not by its name, so that it goes with the disk when two exchange their names. */
const diskFile = (identity: string): string => `disk.${identity}.json`;
const snapshotFile = (snapshotId: string): string => `snapshot.${snapshotId}.json`;

/** Small files, each replaced whole; nobody else writes them, so what was once read or written is known. */
export class AccountBook {
  readonly #server: PoolServer;
  readonly #directory: string;
  readonly #known = new Map<string, DiskAccount | SnapshotAccount>();

  constructor(server: PoolServer, directory: string) {
    this.#server = server;
    this.#directory = directory;
  }

  disk(identity: string): Promise<DiskAccount | undefined> {
    return this.#read(diskFile(identity), diskFields);
  }

  snapshot(snapshotId: string): Promise<SnapshotAccount | undefined> {
    return this.#read(snapshotFile(snapshotId), snapshotFields);
  }

  keepDisk(identity: string, account: DiskAccount): Promise<void> {
    return this.#write(diskFile(identity), account);
  }

  keepSnapshot(snapshotId: string, account: SnapshotAccount): Promise<void> {
    return this.#write(snapshotFile(snapshotId), account);
  }

  forgetDisk(identity: string): Promise<void> {
    return this.#remove(diskFile(identity));
  }

  forgetSnapshot(snapshotId: string): Promise<void> {
    return this.#remove(snapshotFile(snapshotId));
  }

  /** Removes the accounts of what no longer exists. */
  async sweep(identities: readonly string[], snapshotIds: readonly string[]): Promise<void> {
    const kept = new Set([...identities.map(diskFile), ...snapshotIds.map(snapshotFile)]);
    for (const name of await readdir(this.#directory)) if (!kept.has(name)) await this.#remove(name);
  }

  async #read<T extends DiskAccount | SnapshotAccount>(
    name: string,
    fields: readonly (string & keyof T)[],
  ): Promise<T | undefined> {
    const known = this.#known.get(name) ?? (await this.#load(name, fields));
    return known as T | undefined;
  }

  async #load(name: string, fields: readonly string[]): Promise<DiskAccount | SnapshotAccount | undefined> {
    try {
      const value = JSON.parse(await readFile(join(this.#directory, name), 'utf8')) as Record<
        string,
        unknown
      >;
      if (!fields.every((field) => Number.isSafeInteger(value?.[field]))) return undefined;
      const account = value as unknown as DiskAccount | SnapshotAccount;
      this.#known.set(name, account);
      return account;
    } catch (error) {
      // A crash of the machine may leave it cut; it is then as good as absent.
      if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT')
        return undefined;
      throw error;
    }
  }

  async #write(name: string, account: DiskAccount | SnapshotAccount): Promise<void> {
    await this.#server.call('replace-file', join(this.#directory, name), JSON.stringify(account));
    this.#known.set(name, account);
  }

  async #remove(name: string): Promise<void> {
    this.#known.delete(name);
    await rm(join(this.#directory, name), { force: true });
  }
}
