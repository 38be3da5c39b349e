import type { DiskStore } from '@coppice/disks';
import type { Sandbox } from '@coppice/protocol';
import { type GiveUp, LeftBehind, type Machine } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import { allEndings, type LongWork } from '../journal/long-work.ts';
import type { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import { type Lifecycle, pauseId, wrongState } from './lifecycle.ts';
import type { MachineStarter } from './machine-starter.ts';
import { diskBytes } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import type { SandboxFinder } from './sandbox-finder.ts';
import { sandboxView } from './views.ts';

export interface PauserParts {
  readonly memory: MemoryPolicy;
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly work: LongWork;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
  readonly lifecycle: Lifecycle;
}

/**
 * Memory to disk and back. A pause keeps a snapshot of the disk from the same instant as the memory until the sandbox runs
 * again, so that a resume that is cut short can be begun anew.
 */
export class Pauser {
  readonly #parts: PauserParts;
  readonly #lifecycle: Lifecycle;

  constructor(parts: PauserParts) {
    this.#parts = parts;
    this.#lifecycle = parts.lifecycle;
  }

  async pause(ref: string, keep: 'memory' | 'disk', caller?: AbortSignal): Promise<Sandbox> {
    const { finder, machines } = this.#parts;
    const { id } = finder.get(ref);
    return this.#long(id, caller, async (giveUp) => {
      const record = finder.get(id);
      if (record.state === 'paused') return this.#view(id);
      const machine = machines.get(id);
      if (record.state !== 'running' || machine === undefined) throw wrongState(record, 'paused');
      await this.#pauseLocked(record, machine, keep, giveUp);
      return this.#view(id);
    });
  }

  /** Keeps its memory, unless a call came in while this waited for the sandbox. */
  async pauseIf(id: string, isIdle: (record: SandboxRecord) => boolean): Promise<void> {
    const { finder, machines } = this.#parts;
    await this.#long(id, undefined, async (giveUp) => {
      const record = finder.find(id);
      const machine = machines.get(id);
      if (record?.state !== 'running' || machine === undefined || !isIdle(record)) return;
      await this.#pauseLocked(record, machine, 'memory', giveUp);
    });
  }

  #long<T>(id: string, caller: AbortSignal | undefined, work: (giveUp: GiveUp) => Promise<T>): Promise<T> {
    return this.#parts.work.run({ sandboxId: id, caller, endsFor: allEndings }, (signal, giveUp) =>
      this.#parts.locks.exclusive(id, () => {
        signal.throwIfAborted();
        return work(giveUp);
      }),
    );
  }

  async #pauseLocked(
    record: SandboxRecord,
    machine: Machine,
    keep: 'memory' | 'disk',
    giveUp: GiveUp,
  ): Promise<void> {
    const { journal, disks } = this.#parts;
    const { id } = record;
    // What an earlier pause left has the same name, and would be swept together with what this one keeps.
    await this.#parts.swept;
    if (keep === 'memory') {
      await this.#parts.memory.assertKeeps(
        record,
        'Pause it with keep: disk (`coppice pause --disk-only`), which ends its processes, or use the driver gvisor.',
      );
      await disks.makeRoom();
    }
    // Also where only the disk is kept: recovery knows what was kept by whether this is there.
    await this.#lifecycle.dropPause(id);
    journal.begin(id, { kind: 'pause', checkpointed: false });
    journal.step('pause.recorded');
    if (keep === 'memory') {
      try {
        const takeDisk = async () => {
          journal.step('pause.memory-written');
          await disks.snapshotDisk(id, pauseId(id), { signal: giveUp.signal });
        };
        await machine.checkpoint(disks.memoryDir(pauseId(id)), takeDisk, giveUp);
        giveUp.signal?.throwIfAborted();
      } catch (error) {
        if (error instanceof LeftBehind) throw error;
        await this.#lifecycle.dropPause(id);
        journal.finish(id, () => {});
        throw error;
      }
    }
    journal.begin(id, { kind: 'pause', checkpointed: true });
    journal.step('pause.checkpointed');
    await this.finishPause(record, keep);
  }

  /** Also recovery's way, once all that must be kept is kept. */
  async finishPause(record: SandboxRecord, keep: 'memory' | 'disk'): Promise<void> {
    const { journal, state, disks } = this.#parts;
    const { id } = record;
    await this.#lifecycle.endMachine(record, keep === 'disk' ? 5000 : 0);
    // What ran on between the checkpoint and the end is taken back: disk and memory are of one instant.
    if (keep === 'memory') {
      await disks.replaceDisk(id, pauseId(id), diskBytes(record));
      await disks.settle();
    }
    journal.step('pause.machine-stopped');
    journal.finish(id, (emit) => {
      state.sandboxes.update(id, { state: 'paused', pauseKeep: keep, startedAtMs: null });
      emit('sandbox.paused', id, { name: record.name, keep });
    });
    journal.step('pause.committed');
  }

  async resume(ref: string): Promise<Sandbox> {
    const { finder } = this.#parts;
    await this.#parts.swept;
    const { id } = finder.get(ref);
    return this.#long(id, undefined, async ({ signal }) => {
      const record = finder.get(id);
      if (record.state === 'running') return this.#view(id);
      if (record.state !== 'paused') throw wrongState(record, 'resumed');
      this.#lifecycle.assertRoom(record);
      await this.#resumeLocked(record, signal);
      return this.#view(id);
    });
  }

  async #resumeLocked(record: SandboxRecord, signal: AbortSignal | undefined): Promise<void> {
    const { journal, starter, disks } = this.#parts;
    const { id } = record;
    const memoryDir = record.pauseKeep === 'memory' ? disks.memoryDir(pauseId(id)) : undefined;
    journal.begin(id, { kind: 'resume' });
    journal.step('resume.recorded');
    try {
      const { machine, address } = await starter.start(record, { memoryDir, signal });
      journal.step('resume.machine-started');
      this.#lifecycle.started(record, machine, address, 'sandbox.resumed');
    } catch (error) {
      await this.rewind(record);
      throw error;
    }
    journal.step('resume.committed');
    await this.#lifecycle.dropPause(id);
  }

  /** Back to paused as it was: what a half-started machine wrote is gone. */
  async rewind(record: SandboxRecord): Promise<void> {
    const { journal, disks } = this.#parts;
    if (record.pauseKeep === 'memory')
      await disks.replaceDisk(record.id, pauseId(record.id), diskBytes(record));
    journal.finish(record.id, () => {});
  }

  #view(id: string): Sandbox {
    const { finder, state } = this.#parts;
    return sandboxView(finder.get(id), state.forwards.ofSandbox(id));
  }
}
