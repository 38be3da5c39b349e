import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { errorOfNode } from '../native/errno.ts';

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

const isNumbers = (value: unknown, ...names: string[]): boolean =>
  typeof value === 'object' &&
  value !== null &&
  names.every((name) => Number.isSafeInteger((value as Record<string, unknown>)[name]));

const read = async (path: string): Promise<unknown> => {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    // A crash of the machine may leave it cut; it is then as good as absent.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
};

export const readDiskAccount = async (path: string): Promise<DiskAccount | undefined> => {
  const account = await read(path);
  return isNumbers(account, 'sizeBytes', 'inheritedBytes', 'snapshottedBytes')
    ? (account as DiskAccount)
    : undefined;
};

export const readSnapshotAccount = async (path: string): Promise<SnapshotAccount | undefined> => {
  const account = await read(path);
  return isNumbers(account, 'heldBytes', 'addedBytes') ? (account as SnapshotAccount) : undefined;
};

/** For a disk that nobody knows yet: no reader can come too early. */
export const writeFirstAccount = async (path: string, account: DiskAccount): Promise<void> => {
  try {
    await writeFile(path, JSON.stringify(account), { mode: 0o600 });
  } catch (error) {
    await rm(path, { force: true });
    throw errorOfNode(error, `write the account ${path}`);
  }
};

/** Replaces it whole, so that a reader sees the old or the new one. */
export const writeAccount = async (path: string, account: DiskAccount | SnapshotAccount): Promise<void> => {
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(draft, JSON.stringify(account), { mode: 0o600 });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw errorOfNode(error, `write the account ${path}`);
  }
};
