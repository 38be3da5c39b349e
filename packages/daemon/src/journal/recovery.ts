import type { DiskStore, StrayShelf } from '@coppice/disks';
import { madeAtMs } from '@coppice/protocol';
import { LeftBehind, type Machine, type Network } from '@coppice/runtime';
import { type Intent, type MergeIntent, snapshotsOf } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import { type Lifecycle, pauseId } from '../sandboxes/lifecycle.ts';
import type { Drivers, MachineStarter } from '../sandboxes/machine-starter.ts';
import type { Machines } from '../sandboxes/machines.ts';
import { boundNow } from '../sandboxes/mount-check.ts';
import type { Pauser } from '../sandboxes/pauser.ts';
import type { SandboxCreator } from '../sandboxes/sandbox-creator.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { RestoreService } from '../snapshots/restore-service.ts';
import type { MergeService } from '../trees/merge-service.ts';
import type { Journal } from './journal.ts';
import type { KeyedLock } from './keyed-lock.ts';
import { allEndings, type LongWork, WorkEnded } from './long-work.ts';

export interface RecoveryParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly network: Network;
  readonly work: LongWork;
  readonly log: Log;
  readonly drivers: Drivers;
  readonly lifecycle: Lifecycle;
  readonly creator: SandboxCreator;
  readonly restorer: RestoreService;
  readonly merger: MergeService;
  readonly pauser: Pauser;
  readonly undoImport: (snapshotId: string, imageDigest: string | null) => Promise<void>;
  /** For what the tables do not know although it is newer than they are. */
  readonly shelf: StrayShelf;
  /** Why machines that should run do not, where this start itself ended them. */
  readonly endedBecause: string | undefined;
}

/** What there is of a sandbox whose intent is settled, and what else that depends on. */
interface Found {
  readonly machine: Machine | undefined;
  readonly cleared: Promise<void>;
  readonly arrived: () => void;
  readonly ended: AbortSignal | undefined;
}

type FoundTrees = Awaited<ReturnType<DiskStore['list']>>;

/** These may have a machine that goes on; of every other intent the machine ends. */
const mayRun = new Set<Intent['kind']>(['start', 'snapshot', 'merge', 'pause', 'resume']);

/** Trees that an intent made under names that no table has yet: its end, or its undoing, says what becomes of them. */
const madeBy = (intent: Intent): string[] => {
  if (intent.kind === 'snapshot') return [intent.snapshotId];
  if (intent.kind === 'restore') return intent.undoSnapshotId === null ? [] : [intent.undoSnapshotId];
  return snapshotsOf(intent);
};

/** Like Promise.all, but when it fails nothing of it runs on: what is made afterwards must not be swept. */
async function allDone<T>(work: readonly Promise<T>[]): Promise<T[]> {
  const outcomes = await Promise.allSettled(work);
  return outcomes.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}

/**
 * What the first moments of a daemon are for: machines that run are taken in hand again, what a dead daemon left half done is
 * finished or undone, and what belongs to nobody is swept away.
 */
export class Recovery {
  readonly #parts: RecoveryParts;

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
  }

  get #endedBecause(): string {
    return this.#parts.endedBecause ?? 'it ended while no daemon was there to see it';
  }

  /**
   * Takes the lock of each sandbox concerned before it returns, so that calls that come in meanwhile wait for just that
   * sandbox. `swept` settles when nothing unknown is left, or only what could not be removed, and new sandboxes may be made;
   * `settled` when all is done but the merges, which take as long as what they bring: nobody else waits for these.
   */
  async begin(): Promise<{
    readonly strays: readonly string[];
    readonly swept: Promise<void>;
    readonly settled: Promise<void>;
  }> {
    const { state, locks, machines, disks, log } = this.#parts;
    // Before anybody can ask for anything: a snapshot that is taken while it is swept is in no table yet either.
    const everything = await disks.list();
    this.#bindMounts();
    const intents = new Map(state.intents.all().map(({ sandboxId, intent }) => [sandboxId, intent]));
    const records = state.sandboxes.all();
    const known = new Set(records.map((record) => record.id));
    const imports: Promise<void>[] = [];
    for (const [key, intent] of intents) {
      if (intent.kind === 'import') imports.push(this.#parts.undoImport(key, intent.imageDigest));
      else if (!known.has(key)) state.intents.clear(key);
    }

    const lost = this.#failWithoutDisk(records, intents, everything);
    const concerned = records.filter(
      (record) => !lost.has(record.id) && (record.state === 'running' || intents.has(record.id)),
    );
    const keep = new Set(
      concerned
        .filter((record) => mayRun.has(intents.get(record.id)?.kind ?? 'start'))
        .map((record) => record.id),
    );
    const needed = new Set(
      records
        .filter(({ id, state }) => state === 'paused' || intents.get(id)?.kind === 'pause')
        .map(({ id }) => pauseId(id)),
    );
    for (const intent of intents.values())
      if (intent.kind === 'merge') for (const id of snapshotsOf(intent)) needed.add(id);
    const isUnknownSnapshot = (id: string) => !needed.has(id) && state.snapshots.byId(id) === undefined;
    const strays = await this.#setAside(intents, [
      ...everything.disks.filter((id) => !known.has(id)),
      ...everything.snapshots.filter(isUnknownSnapshot),
    ]);
    const isLeft = (id: string) => !strays.has(id);
    const found = {
      disks: everything.disks.filter(isLeft),
      snapshots: everything.snapshots.filter(isLeft),
    };
    await this.#forgetPrograms(found);
    const cleared = allDone([this.#sweep(found, keep, known, needed), ...imports]).then(() => {});
    const swept = cleared.catch((error: unknown) => {
      log.error(
        { err: error },
        'not all that belongs to nobody could be removed; the next start tries again',
      );
    });
    const settling = concerned.map((record) => {
      const intent = intents.get(record.id);
      let arrived: () => void = () => {};
      if (keep.has(record.id))
        machines.expect(
          record.id,
          new Promise((resolve) => {
            arrived = resolve;
          }),
        );
      const work = async () => {
        try {
          if (intent?.kind === 'merge') {
            await this.#settleMerge(record, intent);
            return;
          }
          await this.#parts.work.run({ sandboxId: record.id, endsFor: allEndings }, async (ended) => {
            const machine = keep.has(record.id) ? await this.#adopt(record, ended) : undefined;
            if (intent === undefined) await this.#keepRunning(record, machine, arrived);
            else await this.#settle(record, intent, { machine, cleared, arrived, ended });
          });
        } catch (error) {
          // What this daemon did not come to, the next one does.
          if (error instanceof LeftBehind || (error instanceof WorkEnded && error.ending === 'close')) return;
          this.#parts.log.error({ err: error, sandbox: record.id }, 'a sandbox could not be recovered');
          this.#parts.lifecycle.fail(record, `it could not be recovered: ${(error as Error).message}`);
        } finally {
          arrived();
        }
      };
      const done = locks.exclusive(
        record.id,
        snapshotsOf(intent).reduce((inner, snapshotId) => () => locks.shared(snapshotId, inner), work),
      );
      return intent?.kind === 'merge' ? undefined : done;
    });
    return { strays: [...strays], swept, settled: Promise.all([swept, ...settling]).then(() => {}) };
  }

  /**
   * Of what no table knows, all that was made after the last event that the tables know of: they are behind, as when the database
   * was lost or came back from a backup. What they had forgotten on purpose is older than that.
   */
  async #setAside(
    intents: ReadonlyMap<string, Intent>,
    unknown: readonly string[],
  ): Promise<ReadonlySet<string>> {
    const { state, shelf, journal, log } = this.#parts;
    const sinceMs = state.events.newestMs();
    const begun = new Set([...intents].flatMap(([key, intent]) => [key, ...madeBy(intent)]));
    const strays = new Set<string>();
    for (const id of new Set(unknown)) {
      const atMs = madeAtMs(id.replace(/^pause-/, '')) ?? 0;
      if (atMs <= sinceMs || begun.has(id)) continue;
      try {
        if (!(await shelf.put(id))) continue;
        journal.commit((emit) => emit('stray.set_aside', null, { id }));
        log.warn({ id }, 'something on the pool that the database does not know was set aside');
      } catch (error) {
        log.error(
          { err: error, id },
          'something on the pool that the database does not know stays where it is',
        );
      }
      strays.add(id);
    }
    return strays;
  }

  /** The database is of another time than the pool: what it says of these is not so. */
  #failWithoutDisk(
    records: readonly SandboxRecord[],
    intents: ReadonlyMap<string, Intent>,
    { disks }: FoundTrees,
  ): ReadonlySet<string> {
    const there = new Set(disks);
    const lost = records.filter(({ id, state }) => {
      const kind = intents.get(id)?.kind;
      const comesOrGoes =
        state === 'creating' || state === 'destroying' || kind === 'create' || kind === 'destroy';
      return !there.has(id) && !comesOrGoes;
    });
    for (const record of lost) this.#parts.lifecycle.fail(record, 'its disk is not on the pool');
    return new Set(lost.map(({ id }) => id));
  }

  /** Those of sandboxes that an earlier version made, which did not note which directory it was. */
  #bindMounts(): void {
    const { sandboxes } = this.#parts.state;
    for (const { id, mounts } of sandboxes.all()) {
      const bound = boundNow(mounts);
      if (bound !== undefined) sandboxes.update(id, { mounts: bound });
    }
  }

  /** Of all that is found, also what will be swept: that goes with the next start. */
  async #forgetPrograms({ snapshots }: FoundTrees): Promise<void> {
    const { disks, shelf, log } = this.#parts;
    const checkpoints = [...snapshots.map((id) => disks.memoryDir(id)), ...(await shelf.memoryDirs())];
    try {
      const gone = Object.values(this.#parts.drivers).flatMap((driver) => driver.forgetPrograms(checkpoints));
      if (gone.length > 0)
        log.info({ programs: gone }, 'programs that no memory needs any more were removed');
    } catch (error) {
      log.error({ err: error }, 'it is unknown what memory needs; nothing of it was removed');
    }
  }

  async #adopt(record: SandboxRecord, ended: AbortSignal): Promise<Machine | undefined> {
    const machine = await this.#parts.starter.adopt(record, ended);
    if (machine !== undefined) this.#parts.machines.add(record.id, machine);
    return machine;
  }

  async #keepRunning(
    record: SandboxRecord,
    machine: Machine | undefined,
    arrived: () => void,
  ): Promise<void> {
    if (machine === undefined) {
      this.#parts.lifecycle.fail(record, this.#endedBecause);
      return;
    }
    arrived();
    // The daemon may have died between enforcing a policy and writing it down.
    await this.#parts.starter.applyPolicy(record, machine, record.address !== null);
  }

  async #settle(
    record: SandboxRecord,
    intent: Intent,
    { machine, cleared, arrived, ended }: Found,
  ): Promise<void> {
    const { journal, state, starter } = this.#parts;
    const { lifecycle, creator, restorer, pauser } = this.#parts;
    const { id } = record;
    switch (intent.kind) {
      case 'create':
        await cleared;
        await this.#parts.network.release(id);
        await this.#parts.disks.removeDisk(id);
        creator.forget(record);
        return;
      case 'start':
      case 'resume':
        if (machine !== undefined) {
          const address = await starter.applyPolicy(record, machine, true);
          this.#parts.machines.take(id);
          lifecycle.started(
            record,
            machine,
            address,
            intent.kind === 'start' ? 'sandbox.started' : 'sandbox.resumed',
          );
          if (intent.kind === 'resume') await lifecycle.dropPause(id);
        } else if (intent.kind === 'resume') await pauser.rewind(record);
        else journal.finish(id, () => {});
        return;
      case 'stop':
        await cleared;
        await lifecycle.dropPause(id);
        journal.finish(id, (emit) => {
          state.sandboxes.update(id, { state: 'stopped', failure: null, pauseKeep: null, startedAtMs: null });
          emit('sandbox.stopped', id, { name: record.name });
        });
        return;
      case 'destroy':
        await cleared;
        await lifecycle.destroyLocked(record);
        return;
      case 'snapshot':
        arrived();
        await this.#parts.disks.removeSnapshot(intent.snapshotId);
        if (record.state === 'running' && machine === undefined) lifecycle.fail(record, this.#endedBecause);
        else journal.finish(id, () => {});
        return;
      case 'restore': {
        await cleared;
        await restorer.finish(record, this.#parts.finder.snapshot(intent.snapshotId), intent, ended);
        return;
      }
      case 'pause':
        if (intent.checkpointed) {
          const keep = (await this.#hasPauseMemory(id)) ? 'memory' : 'disk';
          await pauser.finishPause(record, keep);
        } else {
          await lifecycle.dropPause(id);
          if (machine === undefined) lifecycle.fail(record, this.#endedBecause);
          else journal.finish(id, () => {});
        }
        return;
      case 'merge':
      case 'import':
        // The one is settled by itself; the other is of no sandbox, so it never comes here.
        return;
    }
  }

  /** Somebody may want the sandbox stopped or gone before its merge is settled. */
  async #settleMerge(record: SandboxRecord, intent: MergeIntent): Promise<void> {
    const { lifecycle, merger } = this.#parts;
    const { journal, work, log, starter } = this.#parts;
    await work.run({ sandboxId: record.id, endsFor: allEndings }, async (signal) => {
      let machine: Machine | undefined;
      try {
        machine = await this.#adopt(record, signal);
      } catch (error) {
        // Its disk is written next, and nobody may use it meanwhile.
        log.error({ err: error, sandbox: record.id }, 'a sandbox that was being merged into does not answer');
        await starter.driver(record.driver).discard(record.id);
      }
      if (record.state === 'running' && machine === undefined)
        journal.commit(lifecycle.failing(record, 'it ended in the middle of a merge, or does not answer'));
      await merger.redo(record, intent, signal);
    });
  }

  async #hasPauseMemory(id: string): Promise<boolean> {
    return (await this.#parts.disks.list()).snapshots.includes(pauseId(id));
  }

  async #sweep(
    found: FoundTrees,
    keep: ReadonlySet<string>,
    known: ReadonlySet<string>,
    needed: ReadonlySet<string>,
  ): Promise<void> {
    const { network, log, journal } = this.#parts;
    await journal.hold('recovery.sweeping');
    const drivers = Object.values(this.#parts.drivers);
    const removed = (await allDone(drivers.map((driver) => driver.sweep(keep)))).flat();
    if (removed.length > 0) log.info({ machines: removed }, 'machines that belong to no sandbox were ended');
    await allDone([network.sweep(known), this.#sweepDisks(found, known, needed)]);
  }

  /** `needed`: besides the snapshots in their table, what pauses keep and what an intent will still ask for. */
  async #sweepDisks(
    found: FoundTrees,
    known: ReadonlySet<string>,
    needed: ReadonlySet<string>,
  ): Promise<void> {
    const { disks, state } = this.#parts;
    await allDone([
      ...found.disks.filter((id) => !known.has(id)).map((id) => disks.removeDisk(id)),
      ...found.snapshots
        .filter((id) => !needed.has(id) && state.snapshots.byId(id) === undefined)
        .map((id) => disks.removeSnapshot(id)),
    ]);
  }
}
