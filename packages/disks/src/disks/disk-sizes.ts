import { CoppiceError } from '@coppice/protocol';
import type { DiskUsage } from '../disk-store.ts';
import type { TreeCount, TreeCounter, TreeEngine } from '../engines/tree-engine.ts';
import type { AccountBook, DiskAccount, SnapshotAccount } from './account-book.ts';

/** When less than this part of its size is left to a disk, its limit is drawn anew from what it really holds. */
const reviewBelow = 1 / 2;
/** And when less than this is left, even if nothing was written since: files may have been deleted. */
const reviewAgainBelow = 1 / 8;

interface CountedDisk extends TreeCount {
  readonly account: DiskAccount;
}

interface MeasuredDisk extends CountedDisk {
  readonly heldBytes: number;
}

/**
 * Holds disks to their sizes with the kernel's count of what is written through each. The limit of a disk is its size
 * less what it began with, so it can never hold more than its size. The count does not fall when a disk deletes what it
 * began with, or what a snapshot of it keeps; `review` measures disks that come near their limit and gives that back.
 */
export class DiskSizes {
  readonly #engine: TreeEngine;
  readonly #counter: TreeCounter;
  readonly #book: AccountBook;
  /** What had been written through each disk when it was last measured, by identity. */
  readonly #reviewed = new Map<string, number>();

  constructor(engine: TreeEngine, counter: TreeCounter, book: AccountBook) {
    this.#engine = engine;
    this.#counter = counter;
    this.#book = book;
  }

  /** Of a disk that was just made and that nobody uses yet. */
  async openAccount(identity: string, sizeBytes: number, inheritedBytes: number): Promise<void> {
    await this.#book.keepDisk(identity, { sizeBytes, inheritedBytes, snapshottedBytes: 0 });
  }

  /** Before the disk is deleted. */
  async closeAccount(diskDir: string): Promise<void> {
    const { identity } = await this.#counter.read(diskDir, { fresh: false });
    this.#reviewed.delete(identity);
    await this.#book.forgetDisk(identity);
  }

  /** Removes the accounts of what no longer exists. */
  async sweep(
    disks: readonly { readonly id: string; readonly directory: string }[],
    snapshotIds: readonly string[],
  ): Promise<void> {
    const found = await Promise.all(
      disks.map(async ({ id, directory }) => {
        const { identity } = await this.#counter.read(directory, { fresh: false });
        return { id, identity };
      }),
    );
    await this.#book.sweep(found, snapshotIds);
  }

  /** Before the disk is replaced: snapshots may go on holding what was written through it. */
  async rememberReplaced(diskId: string, diskDir: string): Promise<void> {
    const { identity } = await this.#counter.read(diskDir, { fresh: false });
    const former = await this.#book.former(diskId);
    const written = await this.#counter.written(diskDir, former);
    const alive = former.filter((_, index) => written[index]! > 0);
    await this.#book.keepFormer(diskId, [...new Set([...alive, identity])]);
  }

  /** With the disk itself. */
  async forgetReplaced(diskId: string): Promise<void> {
    await this.#book.forgetFormer(diskId);
  }

  /** All that was ever written through the disk and is still on the pool: in it, or in a snapshot of it. */
  async writtenBytes(diskId: string, diskDir: string): Promise<number> {
    const { identity, writtenBytes } = await this.#counter.read(diskDir, { fresh: false });
    // It stands among the former ones when it was to be replaced and that failed.
    const former = (await this.#book.former(diskId)).filter((other) => other !== identity);
    const written = await this.#counter.written(diskDir, former);
    return written.reduce((sum, bytes) => sum + bytes, writtenBytes);
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
      await this.#book.keepSnapshot(snapshotId, { ...account, heldBytes: referencedBytes });
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
    const { account, identity, writtenBytes } = await this.#account(diskDir, { fresh: false });
    await Promise.all([
      this.#book.keepSnapshot(snapshotId, {
        heldBytes: Math.max(0, account.inheritedBytes + writtenBytes),
        addedBytes: Math.max(0, writtenBytes - account.snapshottedBytes),
      }),
      this.#book.keepDisk(identity, { ...account, snapshottedBytes: writtenBytes }),
    ]);
  }

  async forgetSnapshot(snapshotId: string): Promise<void> {
    await this.#book.forgetSnapshot(snapshotId);
  }

  async diskUsage(diskDir: string): Promise<DiskUsage> {
    const { account, writtenBytes } = await this.#account(diskDir, { fresh: true });
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
    const { account, identity, writtenBytes, limitBytes } = await this.#account(diskDir, { fresh: false });
    const leftBytes = limitBytes - writtenBytes;
    if (leftBytes >= account.sizeBytes * reviewBelow) return;
    const unchanged = this.#reviewed.get(identity) === writtenBytes;
    if (unchanged && leftBytes >= account.sizeBytes * reviewAgainBelow) return;
    this.#reviewed.set(identity, writtenBytes);
    await this.#settle(diskDir, await this.#measure(diskDir));
  }

  /** What may still be written, with what was deleted given back first where it matters. */
  async room(diskDir: string, wantedBytes: number): Promise<number> {
    const left = async () => {
      const { limitBytes, writtenBytes } = await this.#counter.read(diskDir, { fresh: false });
      return Math.max(0, limitBytes - writtenBytes);
    };
    const leftBytes = await left();
    if (leftBytes >= wantedBytes) return leftBytes;
    await this.#settle(diskDir, await this.#measure(diskDir));
    return left();
  }

  async #measure(diskDir: string): Promise<MeasuredDisk> {
    const counted = await this.#account(diskDir, { fresh: true });
    const { referencedBytes } = await this.#engine.usage(diskDir);
    // Files may share blocks inside of one disk, which measuring counts twice and the counter does not.
    const mostBytes = Math.max(0, counted.account.inheritedBytes + counted.writtenBytes);
    return { ...counted, heldBytes: Math.min(referencedBytes, mostBytes) };
  }

  async #settle(
    diskDir: string,
    { account, heldBytes, writtenBytes, identity }: MeasuredDisk,
  ): Promise<void> {
    await this.#counter.limit(diskDir, Math.max(1, writtenBytes + account.sizeBytes - heldBytes));
    await this.#book.keepDisk(identity, { ...account, inheritedBytes: heldBytes - writtenBytes });
  }

  async #account(diskDir: string, options: { fresh: boolean }): Promise<CountedDisk> {
    const count = await this.#counter.read(diskDir, options);
    const account = await this.#book.disk(count.identity);
    if (account !== undefined) return { ...count, account };
    const { referencedBytes } = await this.#engine.usage(diskDir);
    const inheritedBytes = referencedBytes - count.writtenBytes;
    const sizeBytes = count.limitBytes + inheritedBytes;
    return { ...count, account: { sizeBytes, inheritedBytes, snapshottedBytes: 0 } };
  }

  async #snapshotAccount(snapshotId: string, snapshotDir: string): Promise<SnapshotAccount> {
    const account = await this.#book.snapshot(snapshotId);
    if (account !== undefined) return account;
    const { referencedBytes, usedBytes } = await this.#engine.usage(snapshotDir);
    const measured = { heldBytes: referencedBytes, addedBytes: usedBytes };
    await this.#book.keepSnapshot(snapshotId, measured);
    return measured;
  }
}
