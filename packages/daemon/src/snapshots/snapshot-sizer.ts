import type { DiskStore } from '@coppice/disks';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { MemorySharer } from './memory/memory-sharer.ts';

/** Counts what snapshots hold, in the background and one at a time, so that taking one does not wait for it. */
export class SnapshotSizer {
  readonly #state: State;
  readonly #disks: DiskStore;
  readonly #log: Log;
  readonly #memories: MemorySharer;
  readonly #queue = new Set<string>();
  #working: Promise<void> | undefined;
  #closed = false;

  constructor(state: State, disks: DiskStore, log: Log, memories: MemorySharer) {
    this.#state = state;
    this.#disks = disks;
    this.#log = log;
    this.#memories = memories;
  }

  add(snapshotId: string): void {
    if (this.#closed) return;
    this.#memories.add(snapshotId);
    this.#queue.add(snapshotId);
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
    });
  }

  /** Those that an earlier daemon did not come to. */
  addUncounted(): void {
    for (const snapshot of this.#state.snapshots.all())
      if (snapshot.referencedBytes === null) this.add(snapshot.id);
    this.#memories.addUncounted();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#queue.clear();
    await Promise.all([this.#working, this.#memories.close()]);
  }

  async #work(): Promise<void> {
    for (const id of this.#queue) {
      this.#queue.delete(id);
      try {
        const { referencedBytes, usedBytes } = await this.#disks.snapshotUsage(id);
        if (!this.#closed) this.#state.snapshots.setSizes(id, referencedBytes, usedBytes);
      } catch (error) {
        // Deleted meanwhile: then nobody asks for its size.
        if (this.#state.snapshots.byId(id) !== undefined)
          this.#log.warn({ err: error, snapshot: id }, 'the size of a snapshot could not be counted');
      }
    }
  }
}
