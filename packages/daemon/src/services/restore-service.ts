import { CoppiceError, type restoredSchema } from '@coppice/protocol';
import type { z } from 'zod';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { Core } from './core.ts';
import { type Lifecycle, wrongState } from './lifecycle.ts';
import { diskBytes } from './machine-starter.ts';
import { assertMemoryFits } from './memory-fit.ts';

type Restored = z.output<typeof restoredSchema>;

const restorable = new Set<SandboxRecord['state']>(['running', 'stopped', 'paused', 'failed']);

/** In place: the sandbox becomes what the snapshot holds and keeps its name, token, address and all snapshots. */
export class RestoreService {
  readonly #core: Core;
  readonly #lifecycle: Lifecycle;

  constructor(core: Core, lifecycle: Lifecycle) {
    this.#core = core;
    this.#lifecycle = lifecycle;
  }

  async restore(ref: string, snapshotRef: string): Promise<Restored> {
    const { finder, locks } = this.#core;
    await this.#core.swept;
    const { id } = finder.get(ref);
    const snapshotId = this.#own(finder.get(id), snapshotRef).id;
    return locks.exclusive(id, () =>
      locks.shared(snapshotId, async () => {
        const record = finder.get(id);
        if (!restorable.has(record.state)) throw wrongState(record, 'restored');
        const snapshot = finder.snapshot(snapshotId);
        await assertMemoryFits(this.#core, snapshot);
        const wasRunning =
          record.state === 'running' || record.state === 'paused' || snapshot.memoryBytes !== null;
        return this.finish(record, snapshot, wasRunning);
      }),
    );
  }

  /** Also recovery's way: each step may have happened already, and doing it again ends in the same state. */
  async finish(record: SandboxRecord, snapshot: SnapshotRecord, wasRunning: boolean): Promise<Restored> {
    const { journal, state, disks, starter } = this.#core;
    const { id } = record;
    const withMemory = snapshot.memoryBytes !== null;
    journal.begin(id, { kind: 'restore', snapshotId: snapshot.id, wasRunning });
    journal.step('restore.recorded');
    await this.#lifecycle.endMachine(id, 0);
    journal.step('restore.machine-stopped');
    try {
      await disks.replaceDisk(id, snapshot.id, diskBytes(record));
    } catch (error) {
      await this.#goOn(record);
      throw error;
    }
    await this.#lifecycle.dropPause(id);
    state.merges.forgetHolder(id);
    journal.step('restore.disk-replaced');
    const restored = { baseSnapshotId: snapshot.id, pauseKeep: null, failure: null };
    if (!wasRunning) {
      journal.finish(id, (emit) => {
        state.sandboxes.update(id, { ...restored, state: 'stopped' });
        emit('sandbox.restored', id, { snapshot_id: snapshot.id, with_memory: false });
      });
      journal.step('restore.committed');
      return { sandbox_id: id, snapshot_id: snapshot.id, state: 'stopped', with_memory: false };
    }
    try {
      const memoryDir = withMemory ? disks.memoryDir(snapshot.id) : undefined;
      const { machine, address } = await starter.start(record, { memoryDir });
      journal.step('restore.machine-started');
      this.#lifecycle.started(record, machine, address, 'sandbox.restored', restored, {
        snapshot_id: snapshot.id,
        with_memory: withMemory,
      });
    } catch (error) {
      // The disk is the restored one already; saying less would be wrong.
      state.sandboxes.update(id, restored);
      this.#lifecycle.fail(record, `it did not start after it was restored: ${(error as Error).message}`);
      throw error;
    }
    journal.step('restore.committed');
    return { sandbox_id: id, snapshot_id: snapshot.id, state: 'running', with_memory: withMemory };
  }

  /** The disk is the old one still: what ran before runs again, what was paused is paused. */
  async #goOn(record: SandboxRecord): Promise<void> {
    const { journal, starter } = this.#core;
    if (record.state !== 'running') {
      journal.finish(record.id, () => {});
      return;
    }
    try {
      const { machine, address } = await starter.start(record);
      this.#lifecycle.started(record, machine, address, 'sandbox.started');
    } catch (error) {
      this.#lifecycle.fail(
        record,
        `it did not start again after a failed restore: ${(error as Error).message}`,
      );
    }
  }

  /** A sandbox's own token reaches restore, so only its own history may be restored: other snapshots are others' files. */
  #own(record: SandboxRecord, snapshotRef: string): SnapshotRecord {
    const snapshot = this.#core.finder.snapshot(snapshotRef, record.id);
    if (snapshot.sandboxId === record.id || snapshot.id === record.parentSnapshotId) return snapshot;
    throw new CoppiceError('not_found', `sandbox ${record.name} has no snapshot ${snapshotRef}`, {
      hint: 'A snapshot of another sandbox can be forked: `coppice fork`.',
    });
  }
}
