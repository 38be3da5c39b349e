import { existsSync } from 'node:fs';
import type { DiskStore } from '@coppice/disks';
import { CoppiceError, type Sandbox } from '@coppice/protocol';
import type { Ending, Machine, Network } from '@coppice/runtime';
import type { MergeIntent } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Emit, Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import { allEndings, type LongWork } from '../journal/long-work.ts';
import type { TokenService } from '../tokens/token-service.ts';
import type { Activity } from './activity.ts';
import type { MachineStarter } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import { assertMemory } from './sandbox-creator.ts';
import type { SandboxFinder } from './sandbox-finder.ts';
import { sandboxView } from './views.ts';

export interface LifecycleParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly network: Network;
  readonly activity: Activity;
  readonly tokens: TokenService;
  readonly work: LongWork;
  readonly now: () => number;
  readonly log: Log;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
  readonly totalMemoryMb: number | null;
  /** The signal that asks the programs of an image to end; undefined: TERM. */
  readonly stopSignal: (imageId: string) => number | undefined;
  /** Takes back a merge that was given up, on the disk of a sandbox whose machine has ended. */
  readonly undoMerge: (record: SandboxRecord, intent: MergeIntent) => Promise<void>;
  /** Told when a sandbox is gone that had grown from a snapshot. */
  readonly onDestroyed: (record: SandboxRecord) => Promise<void>;
}

/** Starting, stopping and destroying, and what happens when a machine ends by itself. */
export class Lifecycle {
  readonly #parts: LifecycleParts;
  readonly #beforeDestroy: ((sandboxId: string) => Promise<void>)[] = [];

  constructor(parts: LifecycleParts) {
    this.#parts = parts;
    parts.machines.onLost((id, machine) =>
      this.#lost(id, machine).catch((error: unknown) =>
        parts.log.error({ err: error, sandbox: id }, 'the end of a sandbox was lost'),
      ),
    );
    parts.machines.onUnreached((id, trouble) => this.#unreached(id, trouble));
  }

  /** Done first when a sandbox is destroyed, while it still runs. */
  beforeDestroy(work: (sandboxId: string) => Promise<void>): void {
    this.#beforeDestroy.push(work);
  }

  async start(ref: string): Promise<Sandbox> {
    const { finder, locks, journal, starter, work } = this.#parts;
    await this.#parts.swept;
    const { id } = finder.get(ref);
    const begin = async (signal: AbortSignal) => {
      const record = finder.get(id);
      if (record.state === 'running') {
        this.#assertReached(record);
        return this.#view(id);
      }
      if (record.state !== 'stopped' && record.state !== 'failed') throw wrongState(record, 'started');
      this.assertRoom(record);
      this.#assertDisk(record);
      signal.throwIfAborted();
      await this.endMachine(record, 0);
      journal.begin(id, { kind: 'start' });
      try {
        journal.step('start.recorded');
        const { machine, address } = await starter.start(record, { signal });
        journal.step('start.machine-started');
        this.started(record, machine, address, 'sandbox.started');
        journal.step('start.committed');
      } catch (error) {
        if (this.#parts.machines.get(id) === undefined) journal.finish(id, () => {});
        throw error;
      }
      return this.#view(id);
    };
    return work.run({ sandboxId: id, endsFor: allEndings }, (signal) =>
      locks.exclusive(id, () => begin(signal)),
    );
  }

  /** It runs, and yet is of no use to who asked for it. */
  #assertReached({ id, name }: SandboxRecord): void {
    const trouble = this.#parts.machines.get(id)?.trouble;
    if (trouble === undefined) return;
    throw new CoppiceError('unavailable', `sandbox ${name} runs, but cannot be reached: ${trouble}`, {
      hint: `It is tried again all the time. To give up what runs in it: coppice stop ${name} && coppice start ${name}`,
    });
  }

  #unreached(id: string, trouble: string | undefined): void {
    const { state, journal, log } = this.#parts;
    const name = state.sandboxes.byId(id)?.name;
    if (name === undefined) return;
    try {
      journal.commit((emit) =>
        trouble === undefined
          ? emit('sandbox.reached', id, { name })
          : emit('sandbox.unreached', id, { name, reason: trouble }),
      );
    } catch (error) {
      log.error({ err: error, sandbox: id }, 'whether a sandbox can be reached could not be written down');
    }
  }

  #assertDisk({ id, name }: SandboxRecord): void {
    if (existsSync(this.#parts.disks.diskDir(id))) return;
    throw new CoppiceError('not_found', `the disk of sandbox ${name} is not on the pool`, {
      hint: `Grow another from one of its snapshots (\`coppice snapshots ${name}\`, \`coppice fork\`), or remove it: \`coppice rm ${name}\`.`,
    });
  }

  /** A sandbox that does not run yet is to run: asked just before that is written down, so that two cannot both fit. */
  assertRoom({ memoryMb }: SandboxRecord): void {
    assertMemory(this.#parts.state.sandboxes.sums().memoryMb, memoryMb, this.#parts.totalMemoryMb);
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
    const { journal, state, machines, activity, now } = this.#parts;
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
    const { finder, journal, state } = this.#parts;
    const { id, state: before, name } = finder.get(ref);
    if (before === 'creating')
      throw new CoppiceError('wrong_state', `sandbox ${name} is still being created`, {
        hint: `Wait for that, or give it up: coppice rm ${name}`,
        details: { state: before },
      });
    return this.#next(id, 'stop', async () => {
      const record = finder.get(id);
      if (record.state === 'stopped') return this.#view(id);
      if (record.state !== 'running' && record.state !== 'paused' && record.state !== 'failed')
        throw wrongState(record, 'stopped');
      await this.#endMerge(record, graceS * 1000);
      journal.begin(id, { kind: 'stop' });
      journal.step('stop.recorded');
      await this.endMachine(record, graceS * 1000);
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

  /** Comes right after what has to leave for it, as that may leave something that nobody else may see. */
  #next<T>(id: string, ending: Ending, work: () => Promise<T>): Promise<T> {
    const { locks, work: longWork } = this.#parts;
    return longWork.end(id, ending) ? locks.urgent(id, work) : locks.exclusive(id, work);
  }

  /** One that had to be given up: without the machine, which might never answer, its files can be put back. */
  async #endMerge(record: SandboxRecord, graceMs: number): Promise<void> {
    const intent = this.#parts.state.intents.of(record.id);
    if (intent?.kind !== 'merge') return;
    await this.endMachine(record, graceMs);
    await this.#parts.undoMerge(record, intent);
  }

  async destroy(ref: string): Promise<void> {
    const { finder } = this.#parts;
    const { id } = finder.get(ref);
    await this.#next(id, 'destroy', async () => {
      const record = finder.find(id);
      // One that was still being created was given up for this, and is gone.
      if (record !== undefined) await this.destroyLocked(record);
    });
  }

  /** Also recovery's way to finish what a dead daemon began, so every step may have happened already. */
  async destroyLocked(record: SandboxRecord): Promise<void> {
    const { journal, state, disks, tokens, activity, network } = this.#parts;
    const { id } = record;
    journal.begin(id, { kind: 'destroy' }, () => state.sandboxes.update(id, { state: 'destroying' }));
    journal.step('destroy.recorded');
    for (const work of this.#beforeDestroy) await work(id);
    await this.endMachine(record, 0);
    journal.step('destroy.machine-stopped');
    await network.release(id);
    journal.step('destroy.network-released');
    await Promise.all([disks.removeDisk(id), this.dropPause(id)]);
    journal.step('destroy.disk-removed');
    journal.finish(id, (emit) => {
      // First: whose event it is stands with the sandbox.
      emit('sandbox.destroyed', id, { name: record.name });
      state.tokens.deleteScope(`sandbox:${id}`);
      state.forwards.deleteAll(id);
      state.sandboxes.delete(id);
      state.merges.forgetHolder(id);
    });
    tokens.forgetScope(`sandbox:${id}`);
    activity.forget(id);
    journal.step('destroy.committed');
    await this.#parts.onDestroyed(record);
  }

  /** Ends the machine if there is one, and takes its link away; the address stays the sandbox's own. */
  async endMachine({ id, state, driver, imageId }: SandboxRecord, graceMs: number): Promise<void> {
    const { machines, starter, stopSignal } = this.#parts;
    const machine = machines.take(id);
    if (machine !== undefined) await machine.stop(graceMs, stopSignal(imageId));
    // Of one that failed something may still run that could not be reached.
    else if (state === 'failed') await starter.driver(driver).discard(id);
  }

  /** What a pause had kept. */
  async dropPause(id: string): Promise<void> {
    await this.#parts.disks.removeSnapshot(pauseId(id));
  }

  /** A machine ended that nobody had asked to. Whoever holds the lock may just be ending it: then there is nothing to tell. */
  async #lost(id: string, machine: Machine): Promise<void> {
    const { locks, machines, state, log } = this.#parts;
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
      this.fail(
        record,
        machine.endedBecause ?? 'its first process ended unexpectedly: killed, or out of memory',
      );
    });
  }

  fail(record: SandboxRecord, failure: string): void {
    this.#parts.journal.finish(record.id, this.failing(record, failure));
  }

  /** For a transaction that is about more. */
  failing(record: SandboxRecord, failure: string): (emit: Emit) => void {
    const { state } = this.#parts;
    return (emit) => {
      state.sandboxes.update(record.id, { state: 'failed', failure, startedAtMs: null });
      emit('sandbox.failed', record.id, { name: record.name, reason: failure });
    };
  }

  #view(id: string): Sandbox {
    const { finder, state } = this.#parts;
    return sandboxView(finder.get(id), state.forwards.ofSandbox(id));
  }
}

/** Under this name the pool keeps the memory and the disk of a sandbox that is paused. */
export const pauseId = (sandboxId: string): string => `pause-${sandboxId}`;

export const wrongState = (record: SandboxRecord, verb: string): CoppiceError =>
  new CoppiceError('wrong_state', `sandbox ${record.name} is ${record.state} and cannot be ${verb}`, {
    details: { state: record.state },
  });
