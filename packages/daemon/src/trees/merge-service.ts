import { dirname } from 'node:path/posix';
import type { DiskStore } from '@coppice/disks';
import {
  type ApplyMergeOptions,
  applyMerge,
  diffTrees,
  type LayeredTree,
  type MergePlan,
  type PoolServer,
  planMerge,
  sideOf,
  type TreeWriter,
  UpperWriter,
} from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import { CoppiceError, type Merged, type mergeSchema } from '@coppice/protocol';
import type { Ending } from '@coppice/runtime';
import type { z } from 'zod';
import { type MergeIntent, snapshotsOf } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import { allEndings, WorkEnded } from '../journal/long-work.ts';
import type { Activity } from '../sandboxes/activity.ts';
import { wrongState } from '../sandboxes/lifecycle.ts';
import type { Machines } from '../sandboxes/machines.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { mountedIn } from '../sandboxes/views.ts';
import type { CallOptions } from '../services.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { SnapshotSizer } from '../snapshots/snapshot-sizer.ts';
import type { SnapshotTaker } from '../snapshots/snapshot-taker.ts';
import { undoOf } from '../snapshots/undo-snapshot.ts';
import { ChangeList } from './compare-service.ts';
import { GuestTreeWriter } from './guest-tree-writer.ts';
import { ancestorsOf, commonAncestor } from './history.ts';
import { type PathChoice, PathFilter } from './path-filter.ts';
import { changedRepositories, type MergeTrees } from './repositories/changed-repositories.ts';
import type { MergedTree, MergedTrees } from './repositories/merged-trees.ts';
import { assertSameImage, type TreeAccess } from './tree-access.ts';

type MergeInput = z.output<typeof mergeSchema>;

/** Of changes and of conflicts, in an answer. */
const mostListed = 10_000;
/** The kernel takes 4,095 bytes, and the agent writes beside its target first. */
const longestGuestPath = 4_000;
const takeBackMs = 300_000;

export interface MergeServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly disks: DiskStore;
  readonly activity: Activity;
  readonly ids: IdSource;
  readonly work: LongWork;
  readonly log: Log;
  readonly trees: TreeAccess;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
  readonly snapshots: SnapshotService;
  readonly server: PoolServer;
  readonly mergedTrees: MergedTrees;
}

/** What a merge would do, by which means. */
interface Planned {
  readonly plan: MergePlan;
  readonly conflicts: MergePlan['conflicts'];
  readonly repositories: MergedTree['repositories'];
  /** What it leads to, where git had a part in it. */
  readonly mergedSnapshotId: string | null;
}

/**
 * Brings what changed in one sandbox since the common ancestor into another, three-way. What was brought over is kept as an
 * automatic snapshot of the source, in the history of both: the next merge between them starts there.
 */
export class MergeService {
  readonly #parts: MergeServiceParts;

  constructor(parts: MergeServiceParts) {
    this.#parts = parts;
  }

  async merge(intoRef: string, input: MergeInput, { signal: caller }: CallOptions = {}): Promise<Merged> {
    const { finder, activity, work } = this.#parts;
    const into = finder.get(intoRef);
    const from = finder.get(input.from);
    if (into.id === from.id)
      throw new CoppiceError('invalid_argument', `sandbox ${into.name} cannot be merged into itself`);
    assertSameImage(from, into);
    const release = activity.hold(into.id);
    try {
      return await work.run({ sandboxId: into.id, caller, endsFor: allEndings }, (signal) =>
        this.#merge(into, from, input, signal),
      );
    } finally {
      release();
    }
  }

  async #merge(
    into: SandboxRecord,
    from: SandboxRecord,
    input: MergeInput,
    signal: AbortSignal,
  ): Promise<Merged> {
    const { finder, locks, disks, journal, ids } = this.#parts;
    const { trees, snapshots } = this.#parts;
    const theirsId = input.dry_run ? await trees.copyNow(from.id, signal) : ids.next('snapshot');
    const release = snapshots.hold(theirsId, 'merged');
    try {
      // One lock at a time: two merges against each other must not wait for each other.
      if (!input.dry_run)
        await locks.exclusive(from.id, () => this.#takeTheirs(finder.get(from.id), into, theirsId, signal));
      journal.step('merge.theirs-taken');
      return await locks.exclusive(into.id, () => this.#withBase(into.id, from, theirsId, input, signal));
    } finally {
      release();
      if (input.dry_run) await disks.removeSnapshot(theirsId);
      else {
        await snapshots.pruneUndos(into.id);
        await snapshots.pruneMerged();
      }
    }
  }

  async #withBase(
    intoId: string,
    from: SandboxRecord,
    theirsId: string,
    input: MergeInput,
    signal: AbortSignal,
  ): Promise<Merged> {
    const { state, locks, finder } = this.#parts;
    signal.throwIfAborted();
    const target = finder.get(intoId);
    const baseId = commonAncestor(state, input.dry_run ? from.id : theirsId, target.id);
    if (baseId === null) return this.#mergeLocked(target, from, null, theirsId, input, signal);
    return locks.shared(baseId, () =>
      // Deleted while this waited for its lock: then the one before it is the base.
      state.snapshots.byId(baseId) === undefined
        ? this.#withBase(intoId, from, theirsId, input, signal)
        : this.#mergeLocked(target, from, baseId, theirsId, input, signal),
    );
  }

  async #takeTheirs(
    from: SandboxRecord,
    into: SandboxRecord,
    id: string,
    signal: AbortSignal,
  ): Promise<void> {
    const request = {
      id,
      note: `as it was merged into ${into.name}`,
      tags: ['merge'],
      memory: false,
      automatic: true,
      by: 'admin' as const,
    };
    await this.#parts.taker.take(from, request, { signal });
    this.#parts.sizer.add(id);
  }

  async #mergeLocked(
    into: SandboxRecord,
    from: SandboxRecord,
    baseId: string | null,
    theirsId: string,
    input: MergeInput,
    signal: AbortSignal,
  ): Promise<Merged> {
    const { journal, state, ids } = this.#parts;
    const { taker, sizer } = this.#parts;
    if (into.state !== 'running' && into.state !== 'stopped') throw wrongState(into, 'merged into');
    const undoId = ids.next('snapshot');
    let recorded = false;
    let mergedId: string | null = null;
    try {
      await taker.copyAhead(into.id, undoId, signal);
      journal.step('merge.undo-taken');
      const sides = { into, from, baseId, oursId: undoId, theirsId };
      const { plan, conflicts, repositories, mergedSnapshotId } = await this.#planAll(sides, input, signal);
      mergedId = mergedSnapshotId;
      const answer = {
        into: into.id,
        from: from.id,
        base_snapshot_id: baseId,
        repositories: [...repositories],
        left_out: [...new Set([...mountedIn(from), ...mountedIn(into)])],
        ...viewOf(plan, conflicts),
      };
      if (input.dry_run) return { ...answer, applied: false, undo_snapshot_id: null };
      this.#assertConflicts(into, conflicts, input);
      const sidesOf = conflicts.map(({ path }) => sideOf(choicesOf(input), path));
      if (sidesOf.includes(undefined)) throw conflict(from, into, answer);
      const takesTheirs = plan.conflicts.some(({ path }) => sideOf(choicesOf(input), path) === 'theirs');
      if (plan.changes.length === 0 && !takesTheirs) {
        journal.commit(() => this.#remember(into.id, theirsId, input));
        return { ...answer, applied: true, undo_snapshot_id: null };
      }
      this.#assertReachable(into, plan);
      await this.#assertRoom(into, plan, takesTheirs);
      signal.throwIfAborted();
      const note = `before ${from.name} was merged in`;
      const undo = taker.describe(into, undoId, undoOf('merge', undoId, note));
      const intent: MergeIntent = {
        kind: 'merge',
        undoSnapshotId: undoId,
        theirsSnapshotId: theirsId,
        baseSnapshotId: baseId,
        prefer: input.prefer ?? null,
        choose: input.choose,
        mergedSnapshotId,
        path: input.path,
        exclude: input.exclude,
      };
      journal.begin(into.id, intent, () => {
        state.snapshots.insert(undo);
        state.sandboxes.update(into.id, { baseSnapshotId: undoId });
        state.merges.passOn(into.id, undoId);
      });
      recorded = true;
      sizer.add(undoId);
      journal.step('merge.recorded');
      await this.#applyOrTakeBack(into, plan, intent, signal);
      this.#finish(into, plan, intent);
      return { ...answer, applied: true, undo_snapshot_id: undoId };
    } finally {
      if (!recorded) await taker.takeBack(into.id, undoId);
      await this.#dropMerged(into.id, mergedId);
    }
  }

  /** Repositories that both sides changed are merged by git, beside both; then ours is to become what that led to. */
  async #planAll(
    sides: {
      into: SandboxRecord;
      from: SandboxRecord;
      baseId: string | null;
      oursId: string;
      theirsId: string;
    },
    input: MergeInput,
    signal: AbortSignal,
  ): Promise<Planned> {
    const { server, mergedTrees } = this.#parts;
    const { into, baseId, oursId, theirsId } = sides;
    const plan = await this.#plan(into, { baseId, oursId, theirsId, ...input }, signal);
    const trees = this.#trees(into, baseId, oursId, theirsId);
    const changed = await changedRepositories(server.until(signal), plan, trees, signal);
    if (changed.length === 0)
      return { plan, conflicts: plan.conflicts, repositories: [], mergedSnapshotId: null };
    const filter = new PathFilter(input);
    for (const { gitDir, moved } of changed) if (moved) assertWhole(filter, gitDir);
    const request = { choices: choicesOf(input), isMeant: (path: string) => filter.has(path) };
    const merged = await mergedTrees.make({ ...sides, trees }, changed, request, signal);
    const { snapshotId = null, conflicts, repositories } = merged;
    const isOurs = (path: string): boolean => !conflicts.some((open) => open.path === path);
    const becoming =
      snapshotId === null
        ? { ...plan, changes: plan.changes.filter(({ path }) => isOurs(path)), conflicts: [] }
        : await this.#plan(into, { baseId, oursId, theirsId, mergedId: snapshotId }, signal);
    return { plan: becoming, conflicts, repositories, mergedSnapshotId: snapshotId };
  }

  /** An intent that is still there reads it. */
  async #dropMerged(intoId: string, id: string | null | undefined): Promise<void> {
    const { disks, state } = this.#parts;
    if (id == null || snapshotsOf(state.intents.of(intoId)).includes(id)) return;
    await disks.removeSnapshot(id);
  }

  /**
   * Recovery: the plan is made again from the same three trees, so it is the same plan, and writing it again ends where
   * the first time would have ended. The target need not stop for it. Where somebody wants the sandbox stopped or gone first, it is
   * taken back; where this daemon ends too, the next one does it again.
   */
  async redo(into: SandboxRecord, intent: MergeIntent, signal: AbortSignal): Promise<void> {
    const { log, machines, state } = this.#parts;
    try {
      if (machines.get(into.id) === undefined) await this.#offline(into, signal).sweep();
      const plan = await this.#planOf(into, intent, signal);
      await this.#applyOrTakeBack(into, plan, intent, signal);
      this.#finish(into, plan, intent);
      await this.#dropMerged(into.id, intent.mergedSnapshotId);
    } catch (error) {
      const isUndone = state.intents.of(into.id) === undefined && !(error instanceof HalfMerged);
      if (!isUndone && !(error instanceof WorkEnded)) throw error;
      log.warn({ err: error, sandbox: into.id }, 'a merge that an earlier daemon began was given up');
    }
  }

  #trees(into: SandboxRecord, baseId: string | null, oursId: string, theirsId: string): MergeTrees {
    const { trees } = this.#parts;
    return {
      base: baseId === null ? trees.ofImage(into.imageId) : trees.ofSnapshot(into, baseId),
      ours: trees.ofSnapshot(into, oursId),
      theirs: trees.ofSnapshot(into, theirsId),
    };
  }

  #planOf(into: SandboxRecord, intent: MergeIntent, signal: AbortSignal): Promise<MergePlan> {
    const { baseSnapshotId: baseId, undoSnapshotId: oursId, theirsSnapshotId: theirsId } = intent;
    const { mergedSnapshotId: mergedId, path, exclude } = intent;
    return this.#plan(into, { baseId, oursId, theirsId, mergedId, path, exclude }, signal);
  }

  #plan(
    into: SandboxRecord,
    {
      baseId,
      oursId,
      theirsId,
      mergedId = null,
      ...choice
    }: PathChoice & {
      readonly baseId: string | null;
      readonly oursId: string;
      readonly theirsId: string;
      readonly mergedId?: string | null | undefined;
    },
    signal: AbortSignal,
  ): Promise<MergePlan> {
    const { trees } = this.#parts;
    const server = this.#parts.server.until(signal);
    const { base, ours, theirs } = this.#trees(into, baseId, oursId, theirsId);
    if (mergedId !== null) return planMerge(server, ours, ours, trees.ofSnapshot(into, mergedId), { signal });
    const filter = new PathFilter(choice);
    const carries = (path: string): boolean => filter.has(path);
    return planMerge(server, base, ours, theirs, { signal, ...(filter.isWhole ? {} : { carries }) });
  }

  /** Before anything is written: a merge that does not fit would fill the disk first and be taken back then. */
  async #assertRoom(into: SandboxRecord, plan: MergePlan, withConflicts: boolean): Promise<void> {
    const neededBytes = plan.changedBytes + (withConflicts ? plan.conflictBytes : 0);
    const leftBytes = await this.#parts.disks.roomBytes(into.id, neededBytes);
    if (neededBytes <= leftBytes) return;
    throw new CoppiceError(
      'no_space',
      `the merge needs ${inMib(neededBytes)} and ${into.name} has ${inMib(leftBytes)} left; nothing was written`,
      {
        details: { needed_bytes: neededBytes, left_bytes: leftBytes },
        hint: `Delete files of ${into.name}, or give it a larger disk: \`coppice update ${into.name} --disk MB\`.`,
      },
    );
  }

  /** A choice for a path that is in no conflict is a mistake: whoever made it looked at something else. */
  #assertConflicts(into: SandboxRecord, conflicts: MergePlan['conflicts'], { choose }: MergeInput): void {
    const inConflict = new Set(conflicts.map(({ path }) => path));
    const other = Object.keys(choose).find((path) => !inConflict.has(path));
    if (other !== undefined)
      throw new CoppiceError('invalid_argument', `${other} is in no conflict with ${into.name}`, {
        hint: 'Look again with dry_run: it lists the paths that a side can be chosen for.',
      });
  }

  /** A sandbox that runs is written by its agent, which takes paths as every program does. */
  #assertReachable(into: SandboxRecord, plan: MergePlan): void {
    if (this.#parts.machines.get(into.id) === undefined) return;
    const hint = `Stop ${into.name} and merge then: its disk is written directly.`;
    for (const { path } of [...plan.changes, ...plan.conflicts]) {
      if (!path.isWellFormed())
        throw new CoppiceError('unsupported', `${path.toWellFormed()} has a name that is not UTF-8`, {
          hint,
        });
      if (path.length > longestGuestPath && Buffer.byteLength(path) > longestGuestPath)
        throw new CoppiceError('unsupported', `${path.slice(0, 200)}… is too long a path for a program`, {
          hint,
        });
    }
  }

  #finish(into: SandboxRecord, plan: MergePlan, intent: MergeIntent): void {
    const { journal, state } = this.#parts;
    journal.step('merge.applied');
    journal.finish(into.id, (emit) => {
      this.#remember(into.id, intent.theirsSnapshotId, intent);
      emit('sandbox.merged', into.id, {
        from: state.snapshots.byId(intent.theirsSnapshotId)?.sandboxId ?? null,
        changes: plan.changes.length,
        conflicts: plan.conflicts.length,
        undo_snapshot_id: intent.undoSnapshotId,
      });
    });
    journal.step('merge.committed');
  }

  /**
   * The target has taken this in, and with it all that came before. A merge of some paths only is not remembered: the next one starts
   * where this one did, and finds what is the same on both sides.
   */
  #remember(intoId: string, theirsId: string, choice: PathChoice): void {
    const { state } = this.#parts;
    if (!new PathFilter(choice).isWhole) return;
    const before = ancestorsOf(state, theirsId);
    for (const earlier of state.merges.of(intoId))
      if (before.has(earlier)) state.merges.remove(intoId, earlier);
    state.merges.add(intoId, theirsId);
  }

  async #applyOrTakeBack(
    into: SandboxRecord,
    plan: MergePlan,
    intent: MergeIntent,
    signal: AbortSignal,
  ): Promise<void> {
    const { work, disks, trees, server } = this.#parts;
    const { undoSnapshotId: undoId, theirsSnapshotId, mergedSnapshotId } = intent;
    try {
      const theirs = trees.ofSnapshot(into, mergedSnapshotId ?? theirsSnapshotId);
      await applyMerge(server.until(signal), plan, theirs, this.#writer(into, signal), choicesOf(intent));
      // What it brought must not be lost once it counts as merged: no later merge would bring it again.
      await disks.settle(into.id);
    } catch (error) {
      if (error instanceof WorkEnded && this.#isLeft(into, error.ending)) throw error;
      const caller = AbortSignal.timeout(takeBackMs);
      await work.run({ sandboxId: into.id, caller, endsFor: allEndings }, (undoing) =>
        this.#undo(into, plan, undoId, error, undoing),
      );
      throw error;
    }
  }

  /**
   * What was written goes with a sandbox that is destroyed; the next daemon finds the intent and does all of it again; and who stops a
   * sandbox that runs undoes it once its machine has ended.
   */
  #isLeft(into: SandboxRecord, ending: Ending): boolean {
    return ending !== 'stop' || this.#parts.machines.get(into.id) !== undefined;
  }

  /** Of a sandbox that no longer runs. */
  async undoOffline(into: SandboxRecord, intent: MergeIntent): Promise<void> {
    await this.#parts.work.run({ sandboxId: into.id, endsFor: ['destroy', 'close'] }, async (signal) => {
      await this.#offline(into, signal).sweep();
      const plan = await this.#planOf(into, intent, signal);
      await this.#undo(into, plan, intent.undoSnapshotId, new WorkEnded('stop'), signal);
    });
    await this.#dropMerged(into.id, intent.mergedSnapshotId);
    await this.#parts.snapshots.pruneMerged();
  }

  async #undo(
    into: SandboxRecord,
    plan: MergePlan,
    undoId: string,
    cause: unknown,
    signal: AbortSignal,
  ): Promise<void> {
    const { log, journal } = this.#parts;
    const reason = (cause as Error).message;
    let takenBack = true;
    try {
      await this.#takeBack(into, plan, this.#parts.trees.ofSnapshot(into, undoId), signal);
    } catch (error) {
      if (error instanceof WorkEnded && this.#isLeft(into, error.ending)) throw error;
      log.error({ err: error, sandbox: into.id }, 'a merge that failed could not be taken back');
      takenBack = false;
    }
    journal.finish(into.id, (emit) =>
      emit('sandbox.merge_failed', into.id, { undo_snapshot_id: undoId, reason, taken_back: takenBack }),
    );
    if (!takenBack) throw new HalfMerged(into, undoId, cause);
  }

  /** Each path that the merge was to write becomes what it was; what the sandbox itself wrote elsewhere stays. */
  async #takeBack(
    into: SandboxRecord,
    plan: MergePlan,
    before: LayeredTree,
    signal: AbortSignal,
  ): Promise<void> {
    const { disks } = this.#parts;
    const { taker, trees } = this.#parts;
    const server = this.#parts.server.until(signal);
    const touched = new Set([...plan.changes, ...plan.conflicts].map((change) => change.path));
    const nowId = await taker.takeTemporary(into.id, signal);
    try {
      const changes = [];
      for await (const change of diffTrees(server, trees.ofSnapshot(into, nowId), before, { signal }))
        if (touched.has(change.path)) changes.push(change);
      await applyMerge(server, { changes, conflicts: [] }, before, this.#writer(into, signal));
    } finally {
      await disks.removeSnapshot(nowId);
    }
  }

  /** A sandbox that runs is written from inside, never behind its kernel's back. */
  #writer(into: SandboxRecord, signal: AbortSignal): TreeWriter {
    const { machines, journal } = this.#parts;
    const machine = machines.get(into.id);
    if (machine === undefined) return this.#offline(into, signal);
    return new GuestTreeWriter(machine.guest.until(signal), async () => {
      journal.step('merge.applying');
      await journal.hold('merge.applying', signal);
    });
  }

  #offline(into: SandboxRecord, signal: AbortSignal): UpperWriter {
    const { trees, server } = this.#parts;
    return new UpperWriter(server.until(signal), trees.ofDisk(into));
  }
}

/** Git merges a repository whole. */
function assertWhole(filter: PathFilter, gitDir: string): void {
  const repository = dirname(gitDir);
  if (filter.hasAllOf(repository)) return;
  throw new CoppiceError(
    'invalid_argument',
    `both sides have new commits in ${repository}, and a part of it cannot be merged by git`,
    {
      hint: `Merge all of ${repository}, or leave its commits out as well: exclude ${gitDir}, and its files are merged as files.`,
    },
  );
}

function viewOf(
  plan: MergePlan,
  allConflicts: MergePlan['conflicts'],
): Pick<Merged, 'changes' | 'summary' | 'conflicts' | 'conflict_count' | 'truncated'> {
  const list = new ChangeList(mostListed);
  for (const change of plan.changes) list.add(change);
  const conflicts = allConflicts.slice(0, mostListed);
  const { truncated, ...view } = list.view();
  return {
    ...view,
    conflicts: conflicts.map((conflict) => ({ ...conflict })),
    conflict_count: allConflicts.length,
    truncated: truncated || conflicts.length < allConflicts.length,
  };
}

const choicesOf = ({
  prefer,
  choose = {},
}: {
  readonly prefer?: 'ours' | 'theirs' | null | undefined;
  readonly choose?: MergeIntent['choose'];
}): ApplyMergeOptions => ({ ...(prefer == null ? {} : { prefer }), choose });

const inMib = (bytes: number): string => `${(bytes / 1024 ** 2).toFixed(1)} MiB`;

/** Neither as it was nor as it was to become. */
class HalfMerged extends CoppiceError {
  constructor(into: SandboxRecord, undoId: string, cause: unknown) {
    super('internal', `a merge into ${into.name} failed half-way: ${(cause as Error).message}`, {
      hint: `Restore the snapshot ${undoId}, which is ${into.name} as it was before.`,
      cause,
    });
  }
}

function conflict(
  from: SandboxRecord,
  into: SandboxRecord,
  { conflicts, conflict_count: count }: Pick<Merged, 'conflicts' | 'conflict_count'>,
): CoppiceError {
  const paths = conflicts.slice(0, 5).map(({ path }) => path);
  const more = count > paths.length ? ` and ${count - paths.length} more` : '';
  return new CoppiceError(
    'conflict',
    `${from.name} and ${into.name} both changed ${paths.join(', ')}${more}; nothing was written`,
    {
      details: { conflicts },
      hint: 'Choose a side with prefer: ours or theirs, or settle the files by hand first.',
    },
  );
}
