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

/** The disks that a restore replaced. Snapshots of them may still hold what was written through them. */
interface FormerDisks {
  readonly identities: readonly string[];
}

type Account = DiskAccount | SnapshotAccount | FormerDisks;

const hasNumbers = (value: Record<string, unknown>, fields: readonly string[]): boolean =>
  fields.every((field) => Number.isSafeInteger(value?.[field]));
const isDisk = (value: Record<string, unknown>): boolean =>
  hasNumbers(value, ['sizeBytes', 'inheritedBytes', 'snapshottedBytes']);
const isSnapshot = (value: Record<string, unknown>): boolean =>
  hasNumbers(value, ['heldBytes', 'addedBytes']);
const isFormer = (value: Record<string, unknown>): boolean =>
  Array.isArray(value?.identities) && value.identities.every((identity) => /^\d+$/.test(identity));

/** By what the tree is, not by its name, so that it goes with the disk when two exchange their names. */
const diskFile = (identity: string): string => `disk.${identity}.json`;
const snapshotFile = (snapshotId: string): string => `snapshot.${snapshotId}.json`;
const formerFile = (diskId: string): string => `former.${diskId}.json`;

/** Small files, each replaced whole; nobody else writes them, so what was once read or written is known. */
export class AccountBook {
  readonly #server: PoolServer;
  readonly #directory: string;
  readonly #known = new Map<string, Account>();

  constructor(server: PoolServer, directory: string) {
    this.#server = server;
    this.#directory = directory;
  }

  disk(identity: string): Promise<DiskAccount | undefined> {
    return this.#read(diskFile(identity), isDisk);
  }

  snapshot(snapshotId: string): Promise<SnapshotAccount | undefined> {
    return this.#read(snapshotFile(snapshotId), isSnapshot);
  }

  async former(diskId: string): Promise<readonly string[]> {
    return (await this.#read<FormerDisks>(formerFile(diskId), isFormer))?.identities ?? [];
  }

  keepDisk(identity: string, account: DiskAccount): Promise<void> {
    return this.#write(diskFile(identity), account);
  }

  keepSnapshot(snapshotId: string, account: SnapshotAccount): Promise<void> {
    return this.#write(snapshotFile(snapshotId), account);
  }

  keepFormer(diskId: string, identities: readonly string[]): Promise<void> {
    return this.#write(formerFile(diskId), { identities });
  }

  forgetFormer(diskId: string): Promise<void> {
    return this.#remove(formerFile(diskId));
  }

  forgetDisk(identity: string): Promise<void> {
    return this.#remove(diskFile(identity));
  }

  forgetSnapshot(snapshotId: string): Promise<void> {
    return this.#remove(snapshotFile(snapshotId));
  }

  /** Removes the accounts of what no longer exists. */
  async sweep(
    disks: readonly { readonly id: string; readonly identity: string }[],
    snapshotIds: readonly string[],
  ): Promise<void> {
    const kept = new Set([
      ...disks.flatMap(({ id, identity }) => [diskFile(identity), formerFile(id)]),
      ...snapshotIds.map(snapshotFile),
    ]);
    for (const name of await readdir(this.#directory)) if (!kept.has(name)) await this.#remove(name);
  }

  async #read<T extends Account>(
    name: string,
    isValid: (value: Record<string, unknown>) => boolean,
  ): Promise<T | undefined> {
    const known = this.#known.get(name) ?? (await this.#load(name, isValid));
    return known as T | undefined;
  }

  async #load(
    name: string,
    isValid: (value: Record<string, unknown>) => boolean,
  ): Promise<Account | undefined> {
    try {
      const value = JSON.parse(await readFile(join(this.#directory, name), 'utf8')) as Record<
        string,
        unknown
      >;
      if (!isValid(value)) return undefined;
      const account = value as unknown as Account;
      this.#known.set(name, account);
      return account;
    } catch (error) {
      // A crash of the machine may leave it cut; it is then as good as absent.
      if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT')
        return undefined;
      throw error;
    }
  }

  async #write(name: string, account: Account): Promise<void> {
    await this.#server.call('replace-file', join(this.#directory, name), JSON.stringify(account));
    this.#known.set(name, account);
  }

  async #remove(name: string): Promise<void> {
    this.#known.delete(name);
    await rm(join(this.#directory, name), { force: true });
  }
}
