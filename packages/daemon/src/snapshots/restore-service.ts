import type { DiskStore } from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import { CoppiceError, type restoredSchema, type restoreSchema, type Scope } from '@coppice/protocol';
import { endingOf, type GiveUp } from '@coppice/runtime';
import type { z } from 'zod';
import type { Intent } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import { allEndings, type LongWork } from '../journal/long-work.ts';
import { type Lifecycle, wrongState } from '../sandboxes/lifecycle.ts';
import type { MachineStarter } from '../sandboxes/machine-starter.ts';
import { diskBytes } from '../sandboxes/machine-starter.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { CallOptions } from '../services.ts';
import type { MemoryPolicy } from './memory/memory-policy.ts';
import type { SnapshotAllowance } from './snapshot-allowance.ts';
import type { SnapshotService } from './snapshot-service.ts';
import type { SnapshotSizer } from './snapshot-sizer.ts';
import type { SnapshotTaker } from './snapshot-taker.ts';
import { undoOf } from './undo-snapshot.ts';

type Restored = z.output<typeof restoredSchema>;
type RestoreIntent = Extract<Intent, { kind: 'restore' }>;

export interface RestoreServiceParts {
  readonly memory: MemoryPolicy;
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly work: LongWork;
  readonly finder: SandboxFinder;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly log: Log;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
  readonly lifecycle: Lifecycle;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
  readonly snapshots: SnapshotService;
  readonly allowance: SnapshotAllowance;
}

const restorable = new Set<SandboxRecord['state']>(['running', 'stopped', 'paused', 'failed']);

/** In place: the sandbox becomes what the snapshot holds and keeps its name, token, address and all snapshots. */
export class RestoreService {
  readonly #parts: RestoreServiceParts;
  readonly #lifecycle: Lifecycle;
  readonly #taker: SnapshotTaker;
  readonly #sizer: SnapshotSizer;
  readonly #snapshots: SnapshotService;
  readonly #allowance: SnapshotAllowance;

  constructor(parts: RestoreServiceParts) {
    this.#parts = parts;
    this.#lifecycle = parts.lifecycle;
    this.#taker = parts.taker;
    this.#sizer = parts.sizer;
    this.#snapshots = parts.snapshots;
    this.#allowance = parts.allowance;
  }

  async restore(
    ref: string,
    input: z.output<typeof restoreSchema>,
    { by = 'sandbox', signal: caller }: CallOptions = {},
  ): Promise<Restored> {
    const { finder, locks, work } = this.#parts;
    await this.#parts.swept;
    const { id, baseSnapshotId } = finder.get(ref);
    const snapshotId = this.#own(finder.get(id), input.snapshot).id;
    const restore = async ({ signal, ended }: GiveUp) => {
      const record = finder.get(id);
      if (!restorable.has(record.state)) throw wrongState(record, 'restored');
      const snapshot = finder.snapshot(snapshotId);
      await this.#parts.memory.assertFits(snapshot);
      signal?.throwIfAborted();
      const intent = await this.#begin(record, snapshot, { discard: input.discard, by, signal });
      // From here on it goes on without its caller: the sandbox would be left without a machine.
      return this.finish(record, snapshot, intent, ended);
    };
    try {
      return await work.run({ sandboxId: id, caller, endsFor: allEndings }, (_, giveUp) =>
        locks.exclusive(id, () => locks.shared(snapshotId, () => restore(giveUp))),
      );
    } finally {
      // It may have been the last that a merge could start from, and has pushed out what undid an earlier one.
      await this.#snapshots.pruneUndo(baseSnapshotId);
      await this.#snapshots.pruneUndos(id);
      await this.#snapshots.pruneMerged();
    }
  }

  /** Nothing is lost yet: what is there now is kept first, unless its owner said not to. */
  async #begin(
    record: SandboxRecord,
    snapshot: SnapshotRecord,
    {
      discard,
      by,
      signal,
    }: {
      readonly discard: boolean;
      readonly by: Scope['kind'];
      readonly signal: AbortSignal | undefined;
    },
  ): Promise<RestoreIntent> {
    const { journal, state, ids } = this.#parts;
    const { id } = record;
    const intent: RestoreIntent = {
      kind: 'restore',
      snapshotId: snapshot.id,
      undoSnapshotId: discard ? null : ids.next('snapshot'),
      wasRunning: record.state === 'running' || record.state === 'paused' || snapshot.memoryBytes !== null,
    };
    const { undoSnapshotId: undoId } = intent;
    const assertRoom = () => {
      if (intent.wasRunning && record.state !== 'running') this.#lifecycle.assertRoom(record);
    };
    assertRoom();
    if (undoId === null) journal.begin(id, intent);
    else {
      try {
        await this.#taker.copyAhead(id, undoId, signal);
        await this.#allowance.assertFits(record, { id: undoId, memoryBytes: null }, by);
        journal.step('restore.undo-taken');
        const request = undoOf('restore', undoId, `before ${snapshot.name} was restored`);
        const undo = this.#taker.describe(record, undoId, request);
        assertRoom();
        journal.begin(id, intent, () => {
          state.snapshots.insert(undo);
          state.sandboxes.update(id, { baseSnapshotId: undoId });
          state.merges.passOn(id, undoId);
        });
      } catch (error) {
        await this.#taker.takeBack(id, undoId);
        throw noRoomToUndo(error);
      }
      this.#sizer.add(undoId);
    }
    journal.step('restore.recorded');
    return intent;
  }

  /**
   * Also recovery's way: each step may have happened already, and doing it again ends in the same state. Where the daemon ends before
   * the machine runs, the next one does it; where the sandbox is stopped meanwhile, it is stopped with what was restored.
   */
  async finish(
    record: SandboxRecord,
    snapshot: SnapshotRecord,
    intent: RestoreIntent,
    ended?: AbortSignal,
  ): Promise<Restored> {
    const { journal, state, disks, starter, now } = this.#parts;
    const { id } = record;
    const withMemory = snapshot.memoryBytes !== null;
    const undo = { undo_snapshot_id: intent.undoSnapshotId };
    await this.#lifecycle.endMachine(record, 0);
    journal.step('restore.machine-stopped');
    try {
      await disks.replaceDisk(id, snapshot.id, diskBytes(record));
    } catch (error) {
      if (endingOf(ended) !== 'close') await this.#goOn(record, ended);
      throw error;
    }
    await this.#lifecycle.dropPause(id);
    state.transaction(() => {
      state.merges.forgetHolder(id);
      state.merges.addRestore({
        holder: id,
        snapshotId: snapshot.id,
        leftId: intent.undoSnapshotId,
        atMs: now(),
      });
    });
    journal.step('restore.disk-replaced');
    // Before the database says so, and while the machine starts.
    const settled = disks.settle();
    settled.catch(() => {});
    const restored = { baseSnapshotId: snapshot.id, pauseKeep: null, failure: null };
    if (!intent.wasRunning) {
      await settled;
      journal.finish(id, (emit) => {
        state.sandboxes.update(id, { ...restored, state: 'stopped' });
        emit('sandbox.restored', id, { snapshot_id: snapshot.id, with_memory: false, ...undo });
      });
      journal.step('restore.committed');
      return { sandbox_id: id, snapshot_id: snapshot.id, state: 'stopped', with_memory: false, ...undo };
    }
    try {
      const memoryDir = withMemory ? disks.memoryDir(snapshot.id) : undefined;
      const { machine, address } = await starter.start(record, { memoryDir, signal: ended });
      await settled;
      journal.step('restore.machine-started');
      this.#lifecycle.started(record, machine, address, 'sandbox.restored', restored, {
        snapshot_id: snapshot.id,
        with_memory: withMemory,
        ...undo,
      });
    } catch (error) {
      if (endingOf(ended) === 'close') throw error;
      // The disk is the restored one already; saying less would be wrong.
      state.sandboxes.update(id, restored);
      this.#lifecycle.fail(record, `it did not start after it was restored: ${(error as Error).message}`);
      if (ended?.aborted) throw restoredWithoutMachine(record, snapshot, ended.reason as Error);
      throw error;
    }
    journal.step('restore.committed');
    return { sandbox_id: id, snapshot_id: snapshot.id, state: 'running', with_memory: withMemory, ...undo };
  }

  /** The disk is the old one still: what ran before runs again, what was paused is paused. */
  async #goOn(record: SandboxRecord, ended: AbortSignal | undefined): Promise<void> {
    const { journal, starter } = this.#parts;
    if (record.state !== 'running') {
      journal.finish(record.id, () => {});
      return;
    }
    try {
      const { machine, address } = await starter.start(record, { signal: ended });
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
    const snapshot = this.#parts.finder.snapshot(snapshotRef, record.id);
    if (snapshot.sandboxId === record.id || snapshot.id === record.parentSnapshotId) return snapshot;
    throw new CoppiceError('not_found', `sandbox ${record.name} has no snapshot ${snapshotRef}`, {
      hint: `List its own with \`coppice snapshots ${record.name}\`; one of another sandbox can be forked: \`coppice fork\`.`,
    });
  }
}

const restoredWithoutMachine = (
  { name }: SandboxRecord,
  snapshot: SnapshotRecord,
  reason: Error,
): CoppiceError =>
  new CoppiceError(
    'cancelled',
    `sandbox ${name} has the disk of snapshot ${snapshot.name}, but was not started: ${reason.message}`,
    { hint: `If it is still there: coppice start ${name}` },
  );

const noRoomToUndo = (error: unknown): unknown =>
  error instanceof CoppiceError && error.code === 'no_space'
    ? new CoppiceError('no_space', `what is there now could not be kept: ${error.message}`, {
        hint: 'Delete snapshots, or restore with discard (`coppice restore --discard`), which cannot be undone.',
        cause: error,
      })
    : error;
