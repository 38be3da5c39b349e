import type { DiskStore } from '@coppice/disks';
import {
  type Belonging,
  CoppiceError,
  type createSnapshotSchema,
  type KeptSnapshot,
  type Snapshot,
  type TakenSnapshot,
  type updateSnapshotSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import { snapshotsOf } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import { allEndings, endingsOfCopy } from '../journal/long-work.ts';
import type { Activity } from '../sandboxes/activity.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { mountedIn, snapshotView } from '../sandboxes/views.ts';
import type { CallOptions } from '../services.ts';
import type { SnapshotSizer } from './snapshot-sizer.ts';
import type { SnapshotTaker } from './snapshot-taker.ts';
import { isUndo, undoTag } from './undo-snapshot.ts';

type Holding = 'merged' | 'exported' | 'restored';

export interface SnapshotServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly disks: DiskStore;
  readonly activity: Activity;
  readonly work: LongWork;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
  readonly undosKept: number;
}

/** Snapshots as things of their own: take, find, delete. */
export class SnapshotService {
  readonly #parts: SnapshotServiceParts;
  readonly #taker: SnapshotTaker;
  readonly #sizer: SnapshotSizer;
  readonly #undosKept: number;
  /** What is in use, and how: nothing else says that it is needed, and who wants to delete it shall not wait for that. */
  readonly #held = new Map<symbol, { readonly id: string; readonly how: Holding }>();

  /** `undosKept`: how many of what undoes merges and restores each sandbox has at most. */
  constructor(parts: SnapshotServiceParts) {
    this.#parts = parts;
    this.#taker = parts.taker;
    this.#sizer = parts.sizer;
    this.#undosKept = parts.undosKept;
  }

  async create(
    ref: string,
    input: z.output<typeof createSnapshotSchema>,
    { signal: caller, by = 'sandbox' }: CallOptions = {},
  ): Promise<TakenSnapshot> {
    const { finder, locks, activity, work, disks } = this.#parts;
    const { id } = finder.get(ref);
    const endsFor = input.memory ? allEndings : endingsOfCopy(disks);
    const record = await work.run({ sandboxId: id, caller, endsFor }, (_, giveUp) =>
      locks.exclusive(id, () => this.#taker.take(finder.get(id), { ...input, by }, giveUp)),
    );
    activity.touch(id);
    this.#sizer.add(record.id);
    return { ...snapshotView(record), left_out: mountedIn(finder.find(id)) };
  }

  /** Files of several sandboxes at one instant: all stand still before the first is copied, and while `also` is done. */
  async createTogether<T>(
    refs: readonly string[],
    input: { readonly name: string; readonly note: string; readonly tags: readonly string[] },
    also: () => Promise<T>,
  ): Promise<{ readonly snapshotIds: ReadonlyMap<string, string>; readonly result: T }> {
    const { finder, locks } = this.#parts;
    // In one order, so that two such calls do not wait for each other.
    const ids = [...new Set(refs.map((ref) => finder.get(ref).id))].sort();
    const taken = new Map<string, string>();
    const locked = <R>(left: readonly string[], work: () => Promise<R>): Promise<R> =>
      left.length === 0 ? work() : locks.exclusive(left[0]!, () => locked(left.slice(1), work));
    const result = await locked(ids, () =>
      this.#taker.whileFrozen(ids, async () => {
        const seen = await also();
        for (const id of ids) {
          const request = { ...input, memory: false, isFrozen: true, by: 'admin' } as const;
          taken.set(id, (await this.#taker.take(finder.get(id), request)).id);
        }
        return seen;
      }),
    );
    for (const id of taken.values()) this.#sizer.add(id);
    return { snapshotIds: taken, result };
  }

  async list({
    sandbox,
    project,
  }: {
    sandbox?: string;
    project?: string | undefined;
  } = {}): Promise<Snapshot[]> {
    const { state, finder } = this.#parts;
    const records =
      sandbox === undefined ? state.snapshots.all() : state.snapshots.ofSandbox(finder.get(sandbox).id);
    return records.filter((record) => project === undefined || record.project === project).map(snapshotView);
  }

  find(snapshotRef: string): Belonging | undefined {
    const record = this.#parts.finder.findSnapshot(snapshotRef);
    return record && { project: record.project, sandboxId: record.sandboxId, runId: record.runId };
  }

  async get(snapshotRef: string, sandboxRef?: string): Promise<Snapshot> {
    return snapshotView(this.#find(snapshotRef, sandboxRef));
  }

  labels(snapshotRef: string): Readonly<Record<string, string>> {
    const { sandboxId, shape } = this.#find(snapshotRef);
    return this.#parts.state.sandboxes.byId(sandboxId)?.labels ?? shape.labels;
  }

  /** Somebody asked for it now: it is automatic no more, and stays until it is deleted. */
  async update(snapshotRef: string, input: z.output<typeof updateSnapshotSchema>): Promise<Snapshot> {
    const { locks, state, journal, finder } = this.#parts;
    const { id, sandboxId } = this.#find(snapshotRef);
    // The lock of the sandbox is that of the names of its snapshots. A deletion happens before this or after it, never in between.
    return locks.exclusive(sandboxId, async () => {
      const { sandboxName, ...before } = finder.snapshot(id);
      const { name = before.name, note = before.note } = input;
      if (name !== before.name) this.#taker.assertNameFree(sandboxId, sandboxName, name);
      journal.commit((emit) => {
        state.snapshots.keep(id, name, note);
        emit('snapshot.updated', sandboxId, { snapshot_id: id, name });
      });
      return snapshotView(finder.snapshot(id));
    });
  }

  async delete(snapshotRef: string, sandboxRef?: string): Promise<void> {
    const { id } = this.#find(snapshotRef, sandboxRef);
    const assertUnused = () => {
      this.#assertNotHeld(id);
      this.#assertNothingGrew(this.#parts.finder.snapshot(id));
    };
    // Before the wait for its lock too: who uses it may take long, and it cannot be deleted then either.
    assertUnused();
    const parentId = await this.#parts.locks.exclusive(id, async () => {
      const record = this.#parts.finder.snapshot(id);
      assertUnused();
      this.#assertNoMergeStarts(record);
      await this.#remove(record);
      return record.parentId;
    });
    await this.pruneUndo(parentId);
    await this.pruneMerged();
  }

  /** All that was taken of a sandbox, the newest first. Those that something else still needs stay, and are named. */
  async deleteOf(sandboxId: string): Promise<KeptSnapshot[]> {
    const kept: KeptSnapshot[] = [];
    for (const { id, name } of this.#parts.state.snapshots.ofSandbox(sandboxId).reverse())
      try {
        await this.delete(id);
      } catch (error) {
        if (!(error instanceof CoppiceError) || error.code === 'internal') throw error;
        if (error.code !== 'not_found') kept.push({ id, name, reason: error.message });
      }
    return kept;
  }

  /** What is left of a sandbox that is gone; automatic ones go by themselves. */
  keptOf(sandboxId: string): KeptSnapshot[] {
    const records = this.#parts.state.snapshots.ofSandbox(sandboxId).filter(({ automatic }) => !automatic);
    return records.map(({ id, name }) => ({ id, name, reason: 'it was kept' }));
  }

  #assertNothingGrew({ id, name }: SnapshotRecord): void {
    const dependants = this.#parts.state.sandboxes.grownFrom(id);
    if (dependants.length === 0) return;
    const names = dependants.map((sandbox) => sandbox.name).join(', ');
    throw new CoppiceError('in_use', `snapshot ${name} is what ${names} grew from, and what a merge needs`, {
      details: { sandboxes: dependants.map((sandbox) => sandbox.id) },
      hint: `Destroy ${names} first.`,
    });
  }

  /** Until the returned function is called it stays, and a deletion is refused instead of made to wait. */
  hold(id: string, how: Holding): () => void {
    const key = Symbol(id);
    this.#held.set(key, { id, how });
    return () => this.#held.delete(key);
  }

  /** Removes what only a sandbox that is gone needed. */
  async sandboxIsGone(record: SandboxRecord): Promise<void> {
    if (record.parentSnapshotId !== null) await this.prune(record.parentSnapshotId);
    await this.pruneUndo(record.baseSnapshotId);
    await this.pruneUndos(record.id);
    await this.pruneMerged();
  }

  /** Once the last sandbox that grew from an automatic snapshot is gone, the snapshot has no reader left. */
  async prune(snapshotId: string): Promise<void> {
    const { state, locks } = this.#parts;
    // Before the wait for its lock too: what is being grown from it may take long.
    if (this.#holdings(snapshotId).length > 0 || state.sandboxes.grownFrom(snapshotId).length > 0) return;
    const parentId = await locks.exclusive(snapshotId, async () => {
      const record = state.snapshots.byId(snapshotId);
      if (record === undefined || !record.automatic || state.sandboxes.grownFrom(snapshotId).length > 0)
        return null;
      if (this.#holdings(snapshotId).length > 0 || this.#startsMerge(record)) return null;
      if (isUndo(record) && this.#mayUndo(record)) return null;
      await this.#remove(record);
      return record.parentId;
    });
    await this.pruneUndo(parentId);
  }

  /** Something went on from this one and does no longer: if it undoes something, that may have been what kept it. */
  async pruneUndo(snapshotId: string | null): Promise<void> {
    const record = snapshotId === null ? undefined : this.#parts.state.snapshots.byId(snapshotId);
    if (record !== undefined && isUndo(record)) await this.prune(record.id);
  }

  /** Of what undoes merges and restores, what newer ones have pushed out; all of it once the sandbox is gone. */
  async pruneUndos(sandboxId: string): Promise<void> {
    const { snapshots, sandboxes } = this.#parts.state;
    const undos = snapshots.automaticWithTag(undoTag, sandboxId).reverse();
    const kept = sandboxes.byId(sandboxId) === undefined ? 0 : this.#undosKept;
    for (const id of undos.slice(kept)) await this.prune(id);
  }

  /** Those too of sandboxes that went while nobody looked. */
  async pruneAllUndos(): Promise<void> {
    const undos = this.#parts.state.snapshots.all().filter(isUndo);
    for (const id of new Set(undos.map(({ sandboxId }) => sandboxId))) await this.pruneUndos(id);
  }

  /** Of what merges kept to start from, what no further merge can ask for. The newest first: older ones may hang on it. */
  async pruneMerged(): Promise<void> {
    for (const id of this.#parts.state.snapshots.automaticWithTag('merge').reverse()) await this.prune(id);
  }

  /** Somebody took it in, and there is still something that grew on from it and may be merged again. */
  #startsMerge({ id, sandboxId }: SnapshotRecord): boolean {
    const { state } = this.#parts;
    if (state.merges.holdersOf(id).length === 0) return false;
    return state.sandboxes.byId(sandboxId) !== undefined || state.snapshots.hasChildren(id);
  }

  /** One of the newest of a sandbox that is there; or histories part at it, and a merge between them starts there. */
  #mayUndo({ id, sandboxId }: SnapshotRecord): boolean {
    const { state } = this.#parts;
    if (state.snapshots.countHeirs(id) > 1) return true;
    if (state.sandboxes.byId(sandboxId) === undefined) return false;
    return state.snapshots.automaticWithTag(undoTag, sandboxId).slice(-this.#undosKept).includes(id);
  }

  #holdings(snapshotId: string): Holding[] {
    const held = [...this.#held.values()].filter(({ id }) => id === snapshotId).map(({ how }) => how);
    return [...held, ...this.#intended(snapshotId)];
  }

  /** A merge or a restore that was begun is to be settled with it. */
  #intended(snapshotId: string): Holding[] {
    return this.#parts.state.intents
      .all()
      .filter(({ intent }) => snapshotsOf(intent).includes(snapshotId))
      .map(({ intent }) => (intent.kind === 'restore' ? 'restored' : 'merged'));
  }

  #assertNotHeld(snapshotId: string): void {
    const [how] = this.#holdings(snapshotId);
    if (how === undefined) return;
    const { name, sandboxName } = this.#parts.finder.snapshot(snapshotId);
    throw new CoppiceError('in_use', `snapshot ${name} of ${sandboxName} is just being ${how}`, {
      hint: 'Try again when that is done, or end it first.',
    });
  }

  #assertNoMergeStarts(record: SnapshotRecord): void {
    const { state } = this.#parts;
    if (!this.#startsMerge(record)) return;
    const holders = state.merges.holdersOf(record.id);
    const names = holders.map((id) => state.sandboxes.byId(id)?.name ?? state.snapshots.byId(id)?.name ?? id);
    throw new CoppiceError(
      'in_use',
      `snapshot ${record.name} is ${record.sandboxName} as it was merged into ${names.join(', ')}, where the next merge starts`,
      {
        details: { holders },
        hint: record.automatic
          ? `It goes by itself with ${record.sandboxName}, or with ${names.join(' and ')}.`
          : `Destroy ${record.sandboxName}, or ${names.join(' and ')}, first.`,
      },
    );
  }

  /** First out of the tables: what recovery finds on the pool and in no table, it removes. */
  async #remove(record: SnapshotRecord): Promise<void> {
    const { journal, state, disks } = this.#parts;
    const neighbours = state.snapshots
      .all()
      .filter((other) => other.parentId === record.id || other.id === record.parentId);
    journal.commit((emit) => {
      state.merges.forgetSnapshot(record.id);
      state.snapshots.delete(record);
      state.sandboxes.rebase(record.id, record.parentId);
      emit('snapshot.deleted', record.sandboxId, { snapshot_id: record.id, name: record.name });
    });
    journal.step('snapshot-delete.committed');
    await disks.removeSnapshot(record.id);
    journal.step('snapshot-delete.removed');
    for (const neighbour of neighbours) this.#sizer.add(neighbour.id);
  }

  #find(snapshotRef: string, sandboxRef?: string): SnapshotRecord {
    const { finder } = this.#parts;
    return finder.snapshot(snapshotRef, sandboxRef === undefined ? undefined : finder.get(sandboxRef).id);
  }
}
