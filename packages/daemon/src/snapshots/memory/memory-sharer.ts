import { setTimeout as sleep } from 'node:timers/promises';
import type { DiskStore } from '@coppice/disks';
import type { SnapshotRecord } from '../../db/snapshot-table.ts';
import type { State } from '../../db/state.ts';
import type { Log } from '../../host/log.ts';
import type { KeyedLock } from '../../journal/keyed-lock.ts';

/** So long no checkpoint may have been added before work begins: it would take the disk from those that wait for an answer. */
const quietMs = 2000;
/** But a daemon that takes checkpoints all the time shares them too. */
const longestWaitMs = 30_000;

export interface MemorySharerParts {
  readonly state: State;
  readonly locks: KeyedLock;
  readonly disks: DiskStore;
  readonly log: Log;
}

/**
 * Lets the memory of each checkpoint share its pages with the one that it grew from, and counts what is left. In the
 * background: until then the pages stand twice, and nothing else differs. A crash leaves them shared or not.
 */
export class MemorySharer {
  readonly #parts: MemorySharerParts;
  readonly #queue = new Set<string>();
  readonly #closing = new AbortController();
  #lastAddedMs = 0;
  #working: Promise<void> | undefined;

  constructor(parts: MemorySharerParts) {
    this.#parts = parts;
  }

  /** Snapshots without memory are none of its business. */
  add(snapshotId: string): void {
    if (this.#closing.signal.aborted || !this.#find(snapshotId)) return;
    this.#queue.add(snapshotId);
    this.#lastAddedMs = performance.now();
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
    });
  }

  /** Those that an earlier daemon did not come to. */
  addUncounted(): void {
    for (const snapshot of this.#parts.state.snapshots.all())
      if (snapshot.memoryUsedBytes === null) this.add(snapshot.id);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#queue.clear();
    await this.#working;
  }

  async #work(): Promise<void> {
    const { state, log } = this.#parts;
    await this.#waitForQuiet();
    for (const id of this.#queue) {
      this.#queue.delete(id);
      try {
        await this.#settle(id);
      } catch (error) {
        // Deleted meanwhile: then nobody asks for it.
        if (state.snapshots.byId(id) !== undefined)
          log.warn({ err: error, snapshot: id }, 'the memory of a checkpoint could not be shared');
      }
    }
  }

  async #waitForQuiet(): Promise<void> {
    const { signal } = this.#closing;
    const endMs = performance.now() + longestWaitMs;
    while (!signal.aborted) {
      const nowMs = performance.now();
      const waitMs = Math.min(this.#lastAddedMs + quietMs, endMs) - nowMs;
      if (waitMs <= 0) return;
      await sleep(waitMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  async #settle(id: string): Promise<void> {
    const { state, disks, locks } = this.#parts;
    await locks.shared(id, async () => {
      const snapshot = this.#find(id);
      if (snapshot === undefined) return;
      const origin = this.#origin(snapshot);
      // One that was counted before is shared already.
      if (origin !== undefined && snapshot.memoryUsedBytes === null)
        await locks.shared(origin.id, async () => {
          if (this.#find(origin.id) !== undefined) await disks.shareMemory(id, origin.id);
        });
      const { usedBytes } = await disks.memoryUsage(id);
      state.snapshots.setMemoryUsed(id, usedBytes);
    });
  }

  /** The nearest checkpoint that it grew from. */
  #origin({ parentId }: SnapshotRecord): SnapshotRecord | undefined {
    const { snapshots } = this.#parts.state;
    let ancestor = parentId === null ? undefined : snapshots.byId(parentId);
    while (ancestor !== undefined && ancestor.memoryBytes === null)
      ancestor = ancestor.parentId === null ? undefined : snapshots.byId(ancestor.parentId);
    return ancestor;
  }

  #find(id: string): SnapshotRecord | undefined {
    const snapshot = this.#parts.state.snapshots.byId(id);
    return snapshot === undefined || snapshot.memoryBytes === null ? undefined : snapshot;
  }
}
