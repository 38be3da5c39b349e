import { CoppiceError, type Sandbox } from '@coppice/protocol';
import type { Machine } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { Core } from './core.ts';
import { assertMemory } from './sandbox-creator.ts';
import { sandboxView } from './views.ts';

export interface LifecycleParts {
  readonly core: Core;
  readonly totalMemoryMb: number | null;
  /** Closes what listens for a sandbox that goes. */
  readonly closeForwards: (sandboxId: string) => Promise<void>;
  /** Told when a sandbox is gone that had grown from a snapshot. */
  readonly onDestroyed: (record: SandboxRecord) => Promise<void>;
}

/** Starting, stopping and destroying, and what happens when a machine ends by itself. */
export class Lifecycle {
  readonly #core: Core;
  readonly #parts: LifecycleParts;

  constructor(parts: LifecycleParts) {
    this.#core = parts.core;
    this.#parts = parts;
  }

  async start(ref: string): Promise<Sandbox> {
    const { finder, locks, journal, starter } = this.#core;
    await this.#core.swept;
    const { id } = finder.get(ref);
    return locks.exclusive(id, async () => {
      const record = finder.get(id);
      if (record.state === 'running') return this.#view(id);
      if (record.state !== 'stopped' && record.state !== 'failed') throw wrongState(record, 'started');
      this.assertRoom(record);
      journal.begin(id, { kind: 'start' });
      try {
        journal.step('start.recorded');
        const { machine, address } = await starter.start(record);
        journal.step('start.machine-started');
        this.started(record, machine, address, 'sandbox.started');
        journal.step('start.committed');
      } catch (error) {
        if (this.#core.machines.get(id) === undefined) journal.finish(id, () => {});
        throw error;
      }
      return this.#view(id);
    });
  }

  /** A sandbox that does not run yet is to run: asked just before that is written down, so that two cannot both fit. */
  assertRoom({ memoryMb }: SandboxRecord): void {
    assertMemory(this.#core.state.sandboxes.sums().memoryMb, memoryMb, this.#parts.totalMemoryMb);
  }

  /** The machine runs: says so in the database, and holds it. */
  started(
    record: SandboxRecord,
    machine: Machine,
    address: string | null,
    event: string,
    also: Partial<Omit<SandboxRecord, 'id'>> = {},
    data: Readonly<Record<string, unknown>> = {},
  ): void {
    const { journal, state, machines, activity, now } = this.#core;
    const startedAtMs = now();
    journal.finish(record.id, (emit) => {
      const changes = { state: 'running', failure: null, pauseKeep: null, address, startedAtMs } as const;
      state.sandboxes.update(record.id, { ...changes, ...also, activeAtMs: startedAtMs });
      emit(event, record.id, { name: record.name, ...data });
    });
    machines.add(record.id, machine);
    activity.touch(record.id);
  }

  async stop(ref: string, graceS: number): Promise<Sandbox> {
    const { finder, locks, journal, state } = this.#core;
    const { id } = finder.get(ref);
    return locks.exclusive(id, async () => {
      const record = finder.get(id);
      if (record.state === 'stopped') return this.#view(id);
      if (record.state !== 'running' && record.state !== 'paused' && record.state !== 'failed')
        throw wrongState(record, 'stopped');
      journal.begin(id, { kind: 'stop' });
      journal.step('stop.recorded');
      await this.endMachine(id, graceS * 1000);
      await this.dropPause(id);
      journal.step('stop.machine-stopped');
      journal.finish(id, (emit) => {
        state.sandboxes.update(id, { state: 'stopped', failure: null, pauseKeep: null, startedAtMs: null });
        emit('sandbox.stopped', id, { name: record.name });
      });
      journal.step('stop.committed');
      return this.#view(id);
    });
  }

  async destroy(ref: string): Promise<void> {
    const { finder, locks } = this.#core;
    const { id } = finder.get(ref);
    await locks.exclusive(id, () => this.destroyLocked(finder.get(id)));
  }

  /** Also recovery's way to finish what a dead daemon began, so every step may have happened already. */
  async destroyLocked(record: SandboxRecord): Promise<void> {
    const { journal, state, disks, tokens, activity, network } = this.#core;
    const { id } = record;
    journal.begin(id, { kind: 'destroy' }, () => state.sandboxes.update(id, { state: 'destroying' }));
    journal.step('destroy.recorded');
    await this.#parts.closeForwards(id);
    await this.endMachine(id, 0);
    journal.step('destroy.machine-stopped');
    await network.release(id);
    journal.step('destroy.network-released');
    await Promise.all([disks.removeDisk(id), this.dropPause(id)]);
    journal.step('destroy.disk-removed');
    journal.finish(id, (emit) => {
      state.tokens.deleteScope(`sandbox:${id}`);
      state.forwards.deleteAll(id);
      state.sandboxes.delete(id);
      state.merges.forgetHolder(id);
      emit('sandbox.destroyed', id, { name: record.name });
    });
    tokens.forgetScope(`sandbox:${id}`);
    activity.forget(id);
    journal.step('destroy.committed');
    await this.#parts.onDestroyed(record);
  }

  /** Ends the machine if there is one, and takes its link away; the address stays the sandbox's own. */
  async endMachine(id: string, graceMs: number): Promise<void> {
    await this.#core.machines.take(id)?.stop(graceMs);
  }

  /** What a pause had kept. */
  async dropPause(id: string): Promise<void> {
    await this.#core.disks.removeSnapshot(pauseId(id));
  }

  /** A machine ended that nobody had asked to. Whoever holds the lock may just be ending it: then there is nothing to tell. */
  async lost(id: string, machine: Machine): Promise<void> {
    const { locks, machines, state, log } = this.#core;
    await locks.exclusive(id, async () => {
      if (machines.get(id) !== machine) return;
      machines.take(id);
      const record = state.sandboxes.byId(id);
      await machine.stop(0).catch((error: unknown) => {
        log.error(
          { err: error, sandbox: id },
          'a sandbox that ended could not be cleaned; the next start tries again',
        );
      });
      if (record === undefined || record.state !== 'running') return;
      this.fail(record, 'its first process ended unexpectedly: killed, or out of memory');
    });
  }

  fail(record: SandboxRecord, failure: string): void {
    const { journal, state } = this.#core;
    journal.finish(record.id, (emit) => {
      state.sandboxes.update(record.id, { state: 'failed', failure, startedAtMs: null });
      emit('sandbox.failed', record.id, { name: record.name, reason: failure });
    });
  }

  #view(id: string): Sandbox {
    const { finder, state } = this.#core;
    return sandboxView(finder.get(id), state.forwards.ofSandbox(id));
  }
}

/** Under this name the pool keeps the memory and the disk of a sandbox that is paused. */
export const pauseId = (sandboxId: string): string => `pause-${sandboxId}`;

export const wrongState = (record: SandboxRecord, verb: string): CoppiceError =>
  new CoppiceError('wrong_state', `sandbox ${record.name} is ${record.state} and cannot be ${verb}`, {
    details: { state: record.state },
  });
