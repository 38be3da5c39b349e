import { join } from 'node:path';
import type { DiskStore, LayeredTree } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import { endingsOfCopy } from '../journal/long-work.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { mountedIn } from '../sandboxes/views.ts';
import type { SnapshotTaker } from '../snapshots/snapshot-taker.ts';

/** A tree that stands still while it is looked at. */
export interface Side {
  readonly imageId: string;
  readonly imageName: string;
  /** For people: the reference as it was given. */
  readonly label: string;
  readonly tree: LayeredTree;
  /** Where directories of the host are mounted, which the tree is without. */
  readonly mounted: readonly string[];
}

export interface TreeAccessParts {
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly disks: DiskStore;
  readonly work: LongWork;
  readonly taker: SnapshotTaker;
  readonly imageDirs: (imageId: string) => readonly string[];
  readonly emptyDir: string;
}

/** Gives read access to the files of snapshots, and of sandboxes as they are now. */
export class TreeAccess {
  readonly #parts: TreeAccessParts;
  readonly #taker: SnapshotTaker;
  readonly #imageDirs: (imageId: string) => readonly string[];
  /** A directory that is always empty: what was changed since the image by nobody. */
  readonly #emptyDir: string;

  constructor(parts: TreeAccessParts) {
    this.#parts = parts;
    this.#taker = parts.taker;
    this.#imageDirs = parts.imageDirs;
    this.#emptyDir = parts.emptyDir;
  }

  /**
   * Locks are taken in one order, so that nobody waits in a ring: a sandbox first, as who holds its lock may wait for that of a
   * snapshot; then snapshots by id, and one that is both sides once.
   */
  withBoth<T>(
    from: string,
    to: string,
    signal: AbortSignal | undefined,
    work: (before: Side, after: Side) => Promise<T>,
  ): Promise<T> {
    const [fromId = '', toId = ''] = [from, to].map((ref) => this.#parts.finder.findSnapshot(ref)?.id);
    if (fromId !== '' && fromId === toId)
      return this.with(from, signal, (side) => work(side, { ...side, label: to }));
    return fromId <= toId
      ? this.with(from, signal, (before) => this.with(to, signal, (after) => work(before, after)))
      : this.with(to, signal, (after) => this.with(from, signal, (before) => work(before, after)));
  }

  /** The snapshot cannot be deleted while the work goes on; of a sandbox the work sees a copy of this moment. */
  async with<T>(ref: string, signal: AbortSignal | undefined, work: (side: Side) => Promise<T>): Promise<T> {
    const { finder, locks } = this.#parts;
    const snapshot = finder.findSnapshot(ref);
    if (snapshot !== undefined)
      return locks.shared(snapshot.id, async () => {
        signal?.throwIfAborted();
        const record = finder.snapshot(snapshot.id);
        return work({ ...record, label: ref, tree: this.ofSnapshot(record, record.id), mounted: [] });
      });
    const record = finder.find(ref);
    if (record === undefined)
      throw new CoppiceError('not_found', `there is no snapshot or sandbox ${ref}`, {
        hint: 'List them with `coppice ls` and `coppice snapshots`; name a snapshot by its id or as sandbox:name.',
      });
    const copyId = await this.copyNow(record.id, signal);
    try {
      const tree = this.ofSnapshot(record, copyId);
      return await work({ ...record, label: ref, tree, mounted: mountedIn(record) });
    } finally {
      await this.#parts.disks.removeSnapshot(copyId);
    }
  }

  /** A temporary copy; whoever asked for it removes it. */
  copyNow(sandboxId: string, caller?: AbortSignal): Promise<string> {
    const { locks, finder, work, disks } = this.#parts;
    return work.run({ sandboxId, caller, endsFor: endingsOfCopy(disks) }, (signal) =>
      // Nobody else may freeze it or let it go on meanwhile.
      locks.exclusive(sandboxId, async () => {
        signal.throwIfAborted();
        return this.#taker.takeTemporary(finder.get(sandboxId).id, signal);
      }),
    );
  }

  ofSnapshot(on: Pick<SnapshotRecord | SandboxRecord, 'imageId'>, snapshotId: string): LayeredTree {
    return {
      imageDirs: this.#imageDirs(on.imageId),
      upperDir: join(this.#parts.disks.snapshotDir(snapshotId), 'upper'),
    };
  }

  /** A disk of a sandbox that does not run. */
  ofDisk(record: SandboxRecord): LayeredTree {
    return {
      imageDirs: this.#imageDirs(record.imageId),
      upperDir: join(this.#parts.disks.diskDir(record.id), 'upper'),
    };
  }

  ofImage(imageId: string): LayeredTree {
    return { imageDirs: this.#imageDirs(imageId), upperDir: this.#emptyDir };
  }
}

export function assertSameImage(a: Side | SandboxRecord, b: Side | SandboxRecord): void {
  if (a.imageId === b.imageId) return;
  throw new CoppiceError(
    'unsupported',
    `one stands on the image ${a.imageName}, the other on ${b.imageName}: they have no common ground`,
    { hint: 'Compare and merge what grew from the same image.' },
  );
}
