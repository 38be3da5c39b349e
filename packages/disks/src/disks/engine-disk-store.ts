import { mkdir, readdir, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { CopyOptions, DiskStore, DiskUsage } from '../disk-store.ts';
import type { TreeEngine } from '../engines/tree-engine.ts';
import { hasErrno } from '../native/errno.ts';
import type { PoolServer } from '../native/pool-server.ts';
import { AccountBook } from './account-book.ts';
import { checkId, idOfUnfinished, isAbandonedBin, isTemporaryName, temporaryName } from './disk-names.ts';
import { DiskSizes } from './disk-sizes.ts';

export interface DiskStoreOptions {
  readonly server: PoolServer;
  readonly engine: TreeEngine;
  /** Holds disks/, snapshots/, memory/ and accounts/; made when absent. */
  readonly directory: string;
  /**
   * Whether sizes are promises. On by default: an engine without limits then refuses to make a disk of a size. Off, sizes
   * are taken as advice.
   */
  readonly enforceSize?: boolean;
  /** Called before something is added, for a pool that grows. */
  readonly makeRoom?: () => Promise<void>;
  readonly freeBytes?: () => Promise<number>;
  /** Told when something that was already out of sight could not be deleted; the next opening tries again. */
  readonly onLeftover?: (path: string, error: unknown) => void;
}

/** Smaller files of a memory are no pages, and not worth it. */
const leastSharedBytes = 2 * 1024 ** 2;

const attempts = 3;
const removeAgainMs = 1000;

type Area = 'disks' | 'snapshots' | 'memory' | 'accounts';

/** Disks of sandboxes on a tree engine. Each step leaves the old state or the new one, and rubbish with a leading dot at most. */
class EngineDiskStore implements DiskStore {
  readonly engine: 'btrfs' | 'reflink' | 'copy';
  readonly #options: DiskStoreOptions;
  /** Absent where the engine cannot count. */
  readonly #sizes: DiskSizes | undefined;
  readonly #removals = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(options: DiskStoreOptions) {
    this.#options = options;
    this.engine = options.engine.name;
    const { counter } = options.engine;
    if (counter !== undefined) {
      const book = new AccountBook(options.server, join(options.directory, 'accounts'));
      this.#sizes = new DiskSizes(options.engine, counter, book);
    }
  }

  get holdsSizes(): boolean {
    return this.#sizes !== undefined;
  }

  /** Makes the directories and removes what an earlier process left unfinished. Nobody else may use the store meanwhile. */
  async prepare(): Promise<void> {
    for (const area of ['disks', 'snapshots', 'memory', 'accounts'] as const) {
      const directory = join(this.#options.directory, area);
      await mkdir(directory, { recursive: true, mode: 0o700 });
      for (const name of await readdir(directory)) {
        if (isTemporaryName(name)) await this.#options.engine.remove(join(directory, name));
      }
    }
    const { disks, snapshots } = await this.list();
    await this.#sizes?.sweep(
      disks.map((id) => ({ id, directory: this.diskDir(id) })),
      snapshots,
    );
  }

  diskDir(diskId: string): string {
    return this.#path('disks', diskId);
  }

  snapshotDir(snapshotId: string): string {
    return this.#path('snapshots', snapshotId);
  }

  memoryDir(snapshotId: string): string {
    return this.#path('memory', snapshotId);
  }

  async makeRoom(): Promise<void> {
    await this.#options.makeRoom?.();
  }

  async createDisk(diskId: string, sizeBytes: number): Promise<void> {
    const target = this.diskDir(diskId);
    this.#checkSize(diskId, sizeBytes);
    await this.makeRoom();
    const draft = this.#temporary('disks', 'new', diskId);
    const identity = await this.#orUndo(draft, () =>
      this.#options.engine.create(target, { draft, directories: ['upper', 'work'], limitBytes: sizeBytes }),
    );
    await this.#openAccount(target, identity, sizeBytes, 0);
  }

  async cloneDisk(
    snapshotId: string,
    diskId: string,
    sizeBytes: number,
    options: CopyOptions = {},
  ): Promise<void> {
    const target = this.diskDir(diskId);
    if (this.#options.engine.atomicClone) {
      await this.#grow(snapshotId, target, sizeBytes, options);
      return;
    }
    const draft = this.#temporary('disks', 'new', diskId);
    await this.#orUndo(draft, async () => {
      await this.#grow(snapshotId, draft, sizeBytes, options);
      await this.#options.server.call('rename', draft, target);
    });
  }

  async replaceDisk(
    diskId: string,
    snapshotId: string,
    sizeBytes: number,
    options: CopyOptions = {},
  ): Promise<void> {
    const target = this.diskDir(diskId);
    // After the exchange this is the name of the old disk.
    const draft = this.#temporary('disks', 'old', diskId);
    await this.#orUndo(draft, async () => {
      await this.#grow(snapshotId, draft, sizeBytes, options);
      await this.#sizes?.rememberReplaced(diskId, target);
      await this.#options.server.call('exchange', draft, target);
    });
    this.#removeLater(draft);
  }

  async settle(diskId?: string): Promise<void> {
    const { engine, directory } = this.#options;
    if (diskId === undefined || !engine.atomicClone) return engine.commit(directory);
    // A clone writes back what was written to its source, and to nothing else, and commits.
    const draft = this.#temporary('snapshots', 'old', diskId);
    await this.#orUndo(draft, async () => {
      await engine.clone(this.diskDir(diskId), draft, { readOnly: true });
    });
    this.#removeLater(draft);
  }

  async snapshotDisk(diskId: string, snapshotId: string, { signal }: CopyOptions = {}): Promise<void> {
    const source = this.diskDir(diskId);
    const target = this.snapshotDir(snapshotId);
    await this.makeRoom();
    if (this.#options.engine.atomicClone) {
      await this.#options.engine.clone(source, target, { readOnly: true });
    } else {
      const draft = this.#temporary('snapshots', 'new', snapshotId);
      await this.#orUndo(draft, async () => {
        await this.#options.engine.clone(source, draft, { readOnly: true, signal });
        await this.#options.server.call('rename', draft, target);
      });
    }
    await this.#orUndo(target, async () => this.#sizes?.recordSnapshot(source, snapshotId));
  }

  async removeDisk(diskId: string): Promise<void> {
    await this.#remove('disks', diskId);
    await this.#sizes?.forgetReplaced(diskId);
  }

  async removeSnapshot(snapshotId: string): Promise<void> {
    await this.#remove('snapshots', snapshotId);
    await this.#remove('memory', snapshotId);
    await this.#sizes?.forgetSnapshot(snapshotId);
  }

  async resizeDisk(diskId: string, sizeBytes: number): Promise<void> {
    this.#checkSize(diskId, sizeBytes);
    await this.#sizes?.resize(diskId, this.diskDir(diskId), sizeBytes);
  }

  async reviewLimits(): Promise<void> {
    if (this.#sizes === undefined) return;
    const failures: unknown[] = [];
    for (const diskId of (await this.list()).disks) {
      try {
        await this.#sizes.review(this.diskDir(diskId));
      } catch (error) {
        // Removed or replaced while it was looked at. Any other trouble with one disk must not keep the others from their review.
        if (!isAbsence(error)) failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  async roomBytes(diskId: string, wantedBytes: number): Promise<number> {
    await this.#options.makeRoom?.();
    const poolBytes = await this.freeBytes();
    if (this.#sizes === undefined) return poolBytes;
    return Math.min(poolBytes, await this.#sizes.room(this.diskDir(diskId), wantedBytes));
  }

  async diskUsage(diskId: string): Promise<DiskUsage> {
    const directory = this.diskDir(diskId);
    return this.#sizes?.diskUsage(directory) ?? this.#options.engine.usage(directory);
  }

  async snapshotUsage(snapshotId: string): Promise<DiskUsage> {
    const directory = this.snapshotDir(snapshotId);
    return this.#sizes?.snapshotUsage(snapshotId, directory) ?? this.#options.engine.usage(directory);
  }

  async writtenBytes(diskId: string, snapshotIds: readonly string[]): Promise<number> {
    if (this.#sizes !== undefined) return this.#sizes.writtenBytes(diskId, this.diskDir(diskId));
    const usages = await Promise.all(snapshotIds.map((id) => this.snapshotUsage(id)));
    return usages.reduce((sum, { referencedBytes }) => sum + referencedBytes, 0);
  }

  async shareMemory(snapshotId: string, withSnapshotId: string): Promise<void> {
    if (this.engine === 'copy') return;
    const [newer, older] = [this.memoryDir(snapshotId), this.memoryDir(withSnapshotId)];
    for (const name of await readdir(newer)) {
      const sizes = await Promise.all([newer, older].map((directory) => sizeOf(join(directory, name))));
      if (Math.min(...sizes) >= leastSharedBytes)
        await this.#options.server.call('share-pages', newer, older, name);
    }
  }

  async memoryUsage(snapshotId: string): Promise<DiskUsage> {
    return this.#options.engine.usage(this.memoryDir(snapshotId));
  }

  async list(): Promise<{ disks: string[]; snapshots: string[] }> {
    const [disks, snapshots, memory] = await Promise.all([
      this.#ids('disks'),
      this.#ids('snapshots'),
      this.#ids('memory'),
    ]);
    return { disks, snapshots: [...new Set([...snapshots, ...memory])].sort() };
  }

  async freeBytes(): Promise<number> {
    if (this.#options.freeBytes !== undefined) return this.#options.freeBytes();
    const { bavail, bsize } = await statfs(this.#options.directory);
    return bavail * bsize;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#removals);
  }

  #path(area: Area, id: string): string {
    return join(this.#options.directory, area, checkId(id));
  }

  #temporary(area: Area, kind: 'new' | 'old', id: string): string {
    return join(this.#options.directory, area, temporaryName(kind, id));
  }

  /** Makes a disk of what the snapshot holds, in a place where nothing is yet. */
  async #grow(snapshotId: string, place: string, sizeBytes: number, { signal }: CopyOptions): Promise<void> {
    const source = this.snapshotDir(snapshotId);
    this.#checkSize(snapshotId, sizeBytes);
    await this.makeRoom();
    if (this.#sizes === undefined) {
      await this.#options.engine.clone(source, place, { readOnly: false, signal });
      return;
    }
    const heldBytes = await this.#sizes.checkFits(snapshotId, source, sizeBytes);
    const limitBytes = this.#sizes.limitOfClone(heldBytes, sizeBytes);
    const identity = await this.#options.engine.clone(source, place, { readOnly: false, limitBytes });
    await this.#openAccount(place, identity, sizeBytes, heldBytes);
  }

  async #openAccount(
    place: string,
    identity: string | undefined,
    sizeBytes: number,
    heldBytes: number,
  ): Promise<void> {
    if (identity === undefined) return;
    await this.#orUndo(place, async () => this.#sizes?.openAccount(identity, sizeBytes, heldBytes));
  }

  async #orUndo<T>(draft: string, steps: () => Promise<T>): Promise<T> {
    try {
      return await steps();
    } catch (error) {
      await this.#options.engine.remove(draft);
      throw error;
    }
  }

  #checkSize(diskId: string, sizeBytes: number): void {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes <= 0) {
      throw new CoppiceError(
        'invalid_argument',
        `The disk ${diskId} cannot have a size of ${sizeBytes} bytes.`,
      );
    }
    if (this.#sizes !== undefined || this.#options.enforceSize === false) return;
    throw new CoppiceError(
      'unsupported',
      `The engine ${this.engine} cannot hold the disk ${diskId} to ${sizeBytes} bytes.`,
      { hint: 'Use the btrfs pool, or allow disks without an enforced size in the configuration.' },
    );
  }

  async #remove(area: Area, id: string): Promise<void> {
    const directory = join(this.#options.directory, area);
    const unfinished = (await readdir(directory)).filter((name) => idOfUnfinished(name) === checkId(id));
    for (const name of unfinished) this.#removeLater(join(directory, name));
    const hidden = this.#temporary(area, 'old', id);
    try {
      await persist(
        () => this.#options.server.call('rename', this.#path(area, id), hidden),
        // It may have been renamed all the same.
        async () => this.#removeLater(hidden),
      );
    } catch (error) {
      if (hasErrno(error, 'ENOENT')) return;
      // A pool that is full has room for deletions only.
      if (!hasErrno(error, 'ENOSPC')) throw error;
      await this.#discardSurely(this.#path(area, id));
      return;
    }
    this.#removeLater(hidden);
  }

  /** Out of sight already; deleting a large tree must not keep the caller waiting. */
  #removeLater(path: string): void {
    const removal = this.#discardInTheEnd(path)
      .catch((error: unknown) => this.#options.onLeftover?.(path, error))
      .finally(() => this.#removals.delete(removal));
    this.#removals.add(removal);
  }

  /** However often the helper dies over it; what is left when the store is closed, the next one removes. */
  async #discardInTheEnd(path: string): Promise<void> {
    const { signal } = this.#closing;
    for (;;) {
      try {
        return await this.#discardSurely(path);
      } catch (error) {
        if (!isDown(error) || signal.aborted) throw error;
        await sleep(removeAgainMs, undefined, { signal });
      }
    }
  }

  /** What a helper that died over it had moved to a bin of its own is found there. */
  async #discardSurely(path: string): Promise<void> {
    await persist(
      () => this.#discard(path),
      () => this.#emptyBins(dirname(path)),
    );
  }

  async #emptyBins(directory: string): Promise<void> {
    for (const name of await readdir(directory)) {
      if (isAbandonedBin(name)) await this.#options.engine.remove(join(directory, name));
    }
  }

  async #discard(path: string): Promise<void> {
    await this.#sizes?.closeAccount(path).catch((error: unknown) => {
      // Snapshots have no account of this kind, and what is half made may not be a tree yet.
      if (!isAbsence(error) && !hasErrno(error, 'ENODATA', 'ENOTTY')) throw error;
    });
    await this.#options.engine.remove(path);
  }

  async #ids(area: Area): Promise<string[]> {
    const ids = new Set<string>();
    for (const name of await readdir(join(this.#options.directory, area))) {
      const id = isTemporaryName(name) ? idOfUnfinished(name) : name;
      if (id !== undefined) ids.add(id);
    }
    return [...ids].sort();
  }
}

const isDown = (error: unknown): boolean => error instanceof CoppiceError && error.code === 'unavailable';

/** For what may be done twice: tried again when the helper died over it. */
const persist = async (
  work: () => Promise<unknown>,
  beforeNext: () => Promise<void> = async () => {},
): Promise<void> => {
  for (let attempt = 1; ; attempt += 1) {
    try {
      if (attempt > 1) await beforeNext();
      await work();
      return;
    } catch (error) {
      if (!isDown(error) || attempt === attempts) throw error;
    }
  }
};

const sizeOf = async (file: string): Promise<number> => {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if (isAbsence(error)) return 0;
    throw error;
  }
};

const isAbsence = (error: unknown): boolean =>
  hasErrno(error, 'ENOENT') || (error as NodeJS.ErrnoException).code === 'ENOENT';

export const createDiskStore = async (options: DiskStoreOptions): Promise<DiskStore> => {
  const store = new EngineDiskStore(options);
  await store.prepare();
  return store;
};
