import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { DiskUsage } from '../disk-store.ts';
import type { TreeCounter, TreeEngine } from '../engines/tree-engine.ts';
import { type DiskAccount, readDiskAccount, readSnapshotAccount, writeAccount } from './disk-account.ts';

/** What is left before a limit is drawn anew from what the disk really holds, as a part of its size. */
const reviewBelow = 1 / 4;

/**
 * Holds disks to their sizes with the kernel's count of what is written through each. The limit of a disk is its size
 * less what it began with, so it can never hold more than its size. The count does not fall when a disk deletes what it
 * began with, or what a snapshot of it keeps; `review` measures disks that come near their limit and gives that back.
 */
export class DiskSizes {
  readonly #engine: TreeEngine;
  readonly #counter: TreeCounter;
  readonly #accountsDir: string;

  constructor(engine: TreeEngine, counter: TreeCounter, accountsDir: string) {
    this.#engine = engine;
    this.#counter = counter;
    this.#accountsDir = accountsDir;
  }

  async openAccount(diskDir: string, sizeBytes: number, inheritedBytes: number): Promise<void> {
    await writeAccount(this.#diskAccount(diskDir), { sizeBytes, inheritedBytes, snapshottedBytes: 0 });
  }

  async limit(diskDir: string, sizeBytes: number): Promise<void> {
    await this.#counter.limit(diskDir, sizeBytes);
  }

  /** What a disk grown from the snapshot may write. */
  limitOfClone(heldBytes: number, sizeBytes: number): number {
    return Math.max(1, sizeBytes - heldBytes);
  }

  /** What the snapshot holds; refuses a size that is smaller. */
  async checkFits(snapshotId: string, snapshotDir: string, sizeBytes: number): Promise<number> {
    const account = await this.#snapshotAccount(snapshotId, snapshotDir);
    if (account.heldBytes <= sizeBytes) return account.heldBytes;
    const { referencedBytes } = await this.#engine.usage(snapshotDir);
    if (referencedBytes <= sizeBytes) {
      await writeAccount(this.#snapshotFile(snapshotId), { ...account, heldBytes: referencedBytes });
      return referencedBytes;
    }
    throw new CoppiceError(
      'no_space',
      `The snapshot ${snapshotId} holds ${referencedBytes} bytes and does not fit on a disk of ${sizeBytes}.`,
      { hint: 'Choose a larger disk size.' },
    );
  }

  /** To be called when the snapshot is there: making it brought the count up to date. */
  async recordSnapshot(diskDir: string, snapshotId: string): Promise<void> {
    const account = await this.#account(diskDir);
    const { writtenBytes } = await this.#counter.read(diskDir, { fresh: false });
    await writeAccount(this.#snapshotFile(snapshotId), {
      heldBytes: Math.max(0, account.inheritedBytes + writtenBytes),
      addedBytes: Math.max(0, writtenBytes - account.snapshottedBytes),
    });
    await writeAccount(this.#diskAccount(diskDir), { ...account, snapshottedBytes: writtenBytes });
  }

  async forgetSnapshot(snapshotId: string): Promise<void> {
    await rm(this.#snapshotFile(snapshotId), { force: true });
  }

  async diskUsage(diskDir: string): Promise<DiskUsage> {
    const { writtenBytes } = await this.#counter.read(diskDir, { fresh: true });
    const account = await this.#account(diskDir);
    return { referencedBytes: Math.max(0, account.inheritedBytes + writtenBytes), usedBytes: writtenBytes };
  }

  async snapshotUsage(snapshotId: string, snapshotDir: string): Promise<DiskUsage> {
    const account = await this.#snapshotAccount(snapshotId, snapshotDir);
    return { referencedBytes: account.heldBytes, usedBytes: account.addedBytes };
  }

  async resize(diskId: string, diskDir: string, sizeBytes: number): Promise<void> {
    const held = await this.#measure(diskDir);
    if (held.heldBytes > sizeBytes) {
      throw new CoppiceError(
        'no_space',
        `The disk ${diskId} holds ${held.heldBytes} bytes, more than the new size of ${sizeBytes}.`,
        { hint: 'Delete files first, or choose a larger size.' },
      );
    }
    await this.#settle(diskDir, { ...held, account: { ...held.account, sizeBytes } });
  }

  /** Gives a disk that comes near its limit back what it has deleted; the others cost one reading of a counter. */
  async review(diskDir: string): Promise<void> {
    const account = await this.#account(diskDir);
    const { writtenBytes, limitBytes } = await this.#counter.read(diskDir, { fresh: false });
    if (limitBytes - writtenBytes >= account.sizeBytes * reviewBelow) return;
    await this.#settle(diskDir, await this.#measure(diskDir));
  }

  async #measure(
    diskDir: string,
  ): Promise<{ account: DiskAccount; heldBytes: number; writtenBytes: number }> {
    const account = await this.#account(diskDir);
    const { writtenBytes } = await this.#counter.read(diskDir, { fresh: true });
    const { referencedBytes } = await this.#engine.usage(diskDir);
    // Files may share blocks inside of one disk, which measuring counts twice and the counter does not.
    const heldBytes = Math.min(referencedBytes, Math.max(0, account.inheritedBytes + writtenBytes));
    return { account, heldBytes, writtenBytes };
  }

  async #settle(
    diskDir: string,
    state: { account: DiskAccount; heldBytes: number; writtenBytes: number },
  ): Promise<void> {
    const { account, heldBytes, writtenBytes } = state;
    await this.#counter.limit(diskDir, Math.max(1, writtenBytes + account.sizeBytes - heldBytes));
    await writeAccount(this.#diskAccount(diskDir), { ...account, inheritedBytes: heldBytes - writtenBytes });
  }

  async #account(diskDir: string): Promise<DiskAccount> {
    const account = await readDiskAccount(this.#diskAccount(diskDir));
    if (account !== undefined) return account;
    const { limitBytes, writtenBytes } = await this.#counter.read(diskDir, { fresh: true });
    const { referencedBytes } = await this.#engine.usage(diskDir);
    return {
      sizeBytes: limitBytes + referencedBytes - writtenBytes,
      inheritedBytes: referencedBytes - writtenBytes,
      snapshottedBytes: 0,
    };
  }

  async #snapshotAccount(snapshotId: string, snapshotDir: string) {
    const account = await readSnapshotAccount(this.#snapshotFile(snapshotId));
    if (account !== undefined) return account;
    const { referencedBytes, usedBytes } = await this.#engine.usage(snapshotDir);
    const measured = { heldBytes: referencedBytes, addedBytes: usedBytes };
    await writeAccount(this.#snapshotFile(snapshotId), measured);
    return measured;
  }

  #diskAccount(diskDir: string): string {
    return join(diskDir, 'account.json');
  }

  #snapshotFile(snapshotId: string): string {
    return join(this.#accountsDir, `${snapshotId}.json`);
  }
}
