import type { DiskStore } from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import { CoppiceError, type Scope } from '@coppice/protocol';
import { type GiveUp, LeftBehind, type Machine } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import { wrongState } from '../sandboxes/lifecycle.ts';
import type { MachineStarter } from '../sandboxes/machine-starter.ts';
import type { Machines } from '../sandboxes/machines.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { shapeOf } from '../sandboxes/shape.ts';
import { directoryBytes } from './directory-bytes.ts';
import type { MemoryPolicy } from './memory/memory-policy.ts';
import type { SnapshotAllowance } from './snapshot-allowance.ts';

export interface SnapshotRequest {
  /** For a caller who must know it before anybody else can. */
  readonly id?: string;
  readonly name?: string | undefined;
  readonly note: string;
  readonly tags: readonly string[];
  readonly memory: boolean;
  /** Nobody asked for it by name; removed when nothing needs it any more. */
  readonly automatic?: boolean;
  /** The caller has frozen it, and thaws it. */
  readonly isFrozen?: boolean;
  /** With which kind of token; `admin` for what the daemon needs itself. */
  readonly by: Scope['kind'];
}

const withoutMemory = {
  memoryBytes: null,
  memoryLengthBytes: null,
  memoryCompatibility: null,
  pauseMs: null,
};
const takeable = new Set<SandboxRecord['state']>(['running', 'stopped', 'paused', 'failed']);

export interface SnapshotTakerParts {
  readonly memory: MemoryPolicy;
  readonly state: State;
  readonly journal: Journal;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly log: Log;
  readonly allowance: SnapshotAllowance;
}

/** Takes snapshots and checkpoints. The caller holds the sandbox's lock. */
export class SnapshotTaker {
  readonly #parts: SnapshotTakerParts;
  readonly #allowance: SnapshotAllowance;

  constructor(parts: SnapshotTakerParts) {
    this.#parts = parts;
    this.#allowance = parts.allowance;
  }

  async take(record: SandboxRecord, request: SnapshotRequest, giveUp: GiveUp = {}): Promise<SnapshotRecord> {
    const { signal } = giveUp;
    const { journal, state, ids } = this.#parts;
    if (!takeable.has(record.state)) throw wrongState(record, 'snapshotted');
    const id = request.id ?? ids.next('snapshot');
    const name = request.name ?? `snapshot-${id.slice(-6)}`;
    this.assertNameFree(record.id, record.name, name);
    this.#allowance.assertMayAdd(record, request);
    const machine = this.#parts.machines.get(record.id);
    if (request.memory) await this.#assertKeepsMemory(record, machine);
    signal?.throwIfAborted();
    journal.begin(record.id, { kind: 'snapshot', snapshotId: id });
    journal.step('snapshot.recorded');
    try {
      const kept = request.memory
        ? await this.#withMemory(record, machine!, id, giveUp)
        : {
            ...withoutMemory,
            pauseMs: await this.#filesOnly(record.id, request.isFrozen ? undefined : machine, id, signal),
          };
      await this.#allowance.assertFits(record, { id, memoryBytes: kept.memoryBytes }, request.by);
      const snapshot = this.describe(record, id, { ...request, name }, kept);
      journal.finish(record.id, (emit) => {
        state.snapshots.insert(snapshot);
        state.sandboxes.update(record.id, { baseSnapshotId: id });
        state.merges.passOn(record.id, id);
        emit('snapshot.created', record.id, { snapshot_id: id, name, memory: request.memory });
      });
      journal.step('snapshot.committed');
      return snapshot;
    } catch (error) {
      if (!(error instanceof LeftBehind)) await this.takeBack(record.id, id);
      throw error;
    }
  }

  /** While all of them stand still. */
  async whileFrozen<T>(sandboxIds: readonly string[], work: () => Promise<T>): Promise<T> {
    const frozen: Machine[] = [];
    try {
      for (const id of sandboxIds) {
        const machine = this.#parts.machines.get(id);
        if (machine === undefined) continue;
        frozen.push(machine);
        await machine.freeze();
      }
      return await work();
    } finally {
      for (const machine of frozen) await machine.thaw();
    }
  }

  /** Of a snapshot that shall not be. Where it cannot be removed now, its intent stays, and the next start removes it. */
  async takeBack(sandboxId: string, id: string): Promise<void> {
    const { disks, journal, state, log } = this.#parts;
    try {
      await disks.removeSnapshot(id);
      const intent = state.intents.of(sandboxId);
      if (intent?.kind === 'snapshot' && intent.snapshotId === id) journal.finish(sandboxId, () => {});
    } catch (error) {
      log.error({ err: error, snapshot: id }, 'a snapshot that was not taken could not be removed yet');
    }
  }

  assertNameFree(sandboxId: string, sandboxName: string, name: string): void {
    if (this.#parts.state.snapshots.byName(sandboxId, name) !== undefined)
      throw new CoppiceError('name_taken', `sandbox ${sandboxName} already has a snapshot named ${name}`);
  }

  /** What is written down of a snapshot of this sandbox. */
  describe(
    record: SandboxRecord,
    id: string,
    request: Omit<SnapshotRequest, 'by'> & { readonly name: string },
    kept: Pick<SnapshotRecord, keyof typeof withoutMemory> = withoutMemory,
  ): SnapshotRecord {
    return {
      id,
      sandboxId: record.id,
      sandboxName: record.name,
      project: record.project,
      owner: record.owner,
      runId: record.runId,
      name: request.name,
      note: request.note,
      tags: request.tags,
      // As it is now: the one that the caller knew may have been deleted since, which takes no lock of the sandbox.
      parentId: this.#parts.finder.get(record.id).baseSnapshotId,
      imageId: record.imageId,
      imageName: record.imageName,
      driver: record.driver,
      engine: this.#parts.disks.engine,
      ...kept,
      memoryUsedBytes: null,
      referencedBytes: null,
      usedBytes: null,
      shape: shapeOf(record),
      automatic: request.automatic ?? false,
      createdAtMs: this.#parts.now(),
    };
  }

  /** The files alone. Written down as meant to be: what the caller writes down next, or `takeBack`, ends that. */
  async copyAhead(sandboxId: string, id: string, signal?: AbortSignal): Promise<void> {
    this.#parts.journal.begin(sandboxId, { kind: 'snapshot', snapshotId: id });
    await this.#copy(sandboxId, id, signal);
  }

  /** The files alone, under an id that no table has yet. */
  async #copy(sandboxId: string, id: string, signal?: AbortSignal): Promise<void> {
    await this.#filesOnly(sandboxId, this.#parts.machines.get(sandboxId), id, signal);
  }

  /**
   * A copy for the moment, to compare or merge with. In no table: if the daemon dies, recovery removes it as what belongs to nobody.
   * Taken like any snapshot, with the sandbox frozen: the pool's own copy would hold names of files whose content was not there yet.
   */
  async takeTemporary(sandboxId: string, signal?: AbortSignal): Promise<string> {
    const id = `tmp-${this.#parts.ids.next('snapshot')}`;
    await this.#copy(sandboxId, id, signal);
    return id;
  }

  async #filesOnly(
    sandboxId: string,
    machine: Machine | undefined,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<number | null> {
    const { disks, journal } = this.#parts;
    if (machine === undefined) {
      await disks.snapshotDisk(sandboxId, id, { signal });
      return null;
    }
    const beganMs = performance.now();
    await machine.freeze();
    try {
      journal.step('snapshot.frozen');
      await disks.snapshotDisk(sandboxId, id, { signal });
      journal.step('snapshot.taken');
    } finally {
      await machine.thaw();
    }
    journal.step('snapshot.thawed');
    await journal.hold('snapshot.thawed');
    return Math.round((performance.now() - beganMs) * 1000) / 1000;
  }

  async #withMemory(record: SandboxRecord, machine: Machine, id: string, giveUp: GiveUp) {
    const { disks, starter, journal } = this.#parts;
    const directory = disks.memoryDir(id);
    await disks.makeRoom();
    const takeDisk = async () => {
      journal.step('checkpoint.memory-written');
      await disks.snapshotDisk(record.id, id, { signal: giveUp.signal });
      journal.step('checkpoint.disk-taken');
    };
    const { pauseMs } = await machine.checkpoint(directory, takeDisk, giveUp);
    giveUp.signal?.throwIfAborted();
    const { memoryCompatibility } = await starter.driver(record.driver).probe();
    const { storedBytes: memoryBytes, lengthBytes: memoryLengthBytes } = await directoryBytes(directory);
    return { memoryBytes, memoryLengthBytes, memoryCompatibility, pauseMs };
  }

  /** Never a checkpoint that silently lacks memory. */
  async #assertKeepsMemory(record: SandboxRecord, machine: Machine | undefined): Promise<void> {
    if (record.state !== 'running' || machine === undefined) throw wrongState(record, 'checkpointed');
    const hint = 'Create the sandbox with the driver gvisor, or snapshot its files alone.';
    await this.#parts.memory.assertKeeps(record, hint);
  }
}
