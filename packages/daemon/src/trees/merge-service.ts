import { CoppiceError, type Merged, type mergeSchema } from '@coppice/protocol';
import {
  applyMerge,
  diffTrees,
  type LayeredTree,
  type MergePlan,
  type PoolServer,
  planMerge,
  type TreeWriter,
  UpperWriter,
} from '@coppice/store';
import type { z } from 'zod';
import type { Intent } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { Core } from '../sandboxes/core.ts';
import { wrongState } from '../sandboxes/lifecycle.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { SnapshotSizer } from '../snapshots/snapshot-sizer.ts';
import type { SnapshotTaker } from '../snapshots/snapshot-taker.ts';
import { undoOf } from '../snapshots/undo-snapshot.ts';
import { changeView } from './compare-service.ts';
import { GuestTreeWriter } from './guest-tree-writer.ts';
import { ancestorsOf, commonAncestor } from './history.ts';
import { assertSameImage, type TreeAccess } from './tree-access.ts';

type MergeInput = z.output<typeof mergeSchema>;
type MergeIntent = Extract<Intent, { kind: 'merge' }>;

export interface MergeServiceParts {
  readonly core: Core;
  readonly trees: TreeAccess;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
  readonly snapshots: SnapshotService;
  readonly server: PoolServer;
}

/**
 * Brings what changed in one sandbox since the common ancestor into another, three-way. What was brought over is kept as an
 * automatic snapshot of the source, in the history of both: the next merge between them starts there.
 */
export class MergeService {
  readonly #core: Core;
  readonly #parts: MergeServiceParts;

  constructor(parts: MergeServiceParts) {
    this.#core = parts.core;
    this.#parts = parts;
  }

  async merge(intoRef: string, input: MergeInput): Promise<Merged> {
    const { finder, locks, disks, journal, ids } = this.#core;
    const { trees, snapshots } = this.#parts;
    const into = finder.get(intoRef);
    const from = finder.get(input.from);
    if (into.id === from.id)
      throw new CoppiceError('invalid_argument', `sandbox ${into.name} cannot be merged into itself`);
    assertSameImage(from, into);
    const theirsId = input.dry_run ? await trees.copyNow(from.id) : ids.next('snapshot');
    const release = snapshots.hold(theirsId, 'merged');
    try {
      // One lock at a time: two merges against each other must not wait for each other.
      if (!input.dry_run)
        await locks.exclusive(from.id, () => this.#takeTheirs(finder.get(from.id), into, theirsId));
      journal.step('merge.theirs-taken');
      return await locks.exclusive(into.id, () => this.#withBase(into.id, from, theirsId, input));
    } finally {
      release();
      if (input.dry_run) await disks.removeSnapshot(theirsId);
      else {
        await snapshots.pruneUndos(into.id);
        await snapshots.pruneMerged();
      }
    }
  }

  async #withBase(intoId: string, from: SandboxRecord, theirsId: string, input: MergeInput): Promise<Merged> {
    const { state, locks, finder } = this.#core;
    const target = finder.get(intoId);
    const baseId = commonAncestor(state, input.dry_run ? from.id : theirsId, target.id);
    if (baseId === null) return this.#mergeLocked(target, from, null, theirsId, input);
    return locks.shared(baseId, () =>
      // Deleted while this waited for its lock: then the one before it is the base.
      state.snapshots.byId(baseId) === undefined
        ? this.#withBase(intoId, from, theirsId, input)
        : this.#mergeLocked(target, from, baseId, theirsId, input),
    );
  }

  async #takeTheirs(from: SandboxRecord, into: SandboxRecord, id: string): Promise<void> {
    await this.#parts.taker.take(from, {
      id,
      note: `as it was merged into ${into.name}`,
      tags: ['merge'],
      memory: false,
      automatic: true,
    });
    this.#parts.sizer.add(id);
  }

  async #mergeLocked(
    into: SandboxRecord,
    from: SandboxRecord,
    baseId: string | null,
    theirsId: string,
    input: MergeInput,
  ): Promise<Merged> {
    const { journal, state, ids, disks } = this.#core;
    const { taker, sizer } = this.#parts;
    if (into.state !== 'running' && into.state !== 'stopped') throw wrongState(into, 'merged into');
    const undoId = ids.next('snapshot');
    await taker.copy(into.id, undoId);
    let recorded = false;
    try {
      journal.step('merge.undo-taken');
      const plan = await this.#plan(into, baseId, undoId, theirsId);
      const answer = {
        into: into.id,
        from: from.id,
        base_snapshot_id: baseId,
        changes: plan.changes.map(changeView),
        conflicts: plan.conflicts.map((conflict) => ({ ...conflict })),
      };
      if (input.dry_run) return { ...answer, applied: false, undo_snapshot_id: null };
      if (plan.conflicts.length > 0 && input.prefer === undefined)
        throw conflict(from, into, answer.conflicts);
      if (plan.changes.length === 0 && (plan.conflicts.length === 0 || input.prefer === 'ours')) {
        journal.commit(() => this.#remember(into.id, theirsId));
        return { ...answer, applied: true, undo_snapshot_id: null };
      }
      const writer = this.#writer(into, plan);
      const note = `before ${from.name} was merged in`;
      const undo = taker.describe(into, undoId, undoOf('merge', undoId, note));
      const intent: MergeIntent = {
        kind: 'merge',
        undoSnapshotId: undoId,
        theirsSnapshotId: theirsId,
        baseSnapshotId: baseId,
        prefer: input.prefer ?? null,
      };
      journal.begin(into.id, intent, () => {
        state.snapshots.insert(undo);
        state.sandboxes.update(into.id, { baseSnapshotId: undoId });
        state.merges.passOn(into.id, undoId);
      });
      recorded = true;
      sizer.add(undoId);
      journal.step('merge.recorded');
      await this.#applyOrTakeBack(into, plan, intent, writer);
      this.#finish(into, plan, intent);
      return { ...answer, applied: true, undo_snapshot_id: undoId };
    } finally {
      if (!recorded) await disks.removeSnapshot(undoId);
    }
  }

  /**
   * Recovery: the plan is made again from the same three trees, so it is the same plan, and writing it again ends where
   * the first time would have ended. The target need not stop for it.
   */
  async redo(into: SandboxRecord, intent: MergeIntent): Promise<void> {
    const { undoSnapshotId: undoId, theirsSnapshotId: theirsId } = intent;
    const plan = await this.#plan(into, intent.baseSnapshotId, undoId, theirsId);
    await this.#applyOrTakeBack(into, plan, intent, this.#writer(into, plan));
    this.#finish(into, plan, intent);
  }

  #plan(into: SandboxRecord, baseId: string | null, oursId: string, theirsId: string): Promise<MergePlan> {
    const { trees } = this.#parts;
    const base = baseId === null ? trees.ofImage(into.imageId) : trees.ofSnapshot(into, baseId);
    return planMerge(
      this.#parts.server,
      base,
      trees.ofSnapshot(into, oursId),
      trees.ofSnapshot(into, theirsId),
    );
  }

  #finish(into: SandboxRecord, plan: MergePlan, intent: MergeIntent): void {
    const { journal, state } = this.#core;
    journal.step('merge.applied');
    journal.finish(into.id, (emit) => {
      this.#remember(into.id, intent.theirsSnapshotId);
      emit('sandbox.merged', into.id, {
        from: state.snapshots.byId(intent.theirsSnapshotId)?.sandboxId ?? null,
        changes: plan.changes.length,
        conflicts: plan.conflicts.length,
        undo_snapshot_id: intent.undoSnapshotId,
      });
    });
    journal.step('merge.committed');
  }

  /** The target has taken this in, and with it all that came before. */
  #remember(intoId: string, theirsId: string): void {
    const { state } = this.#core;
    const before = ancestorsOf(state, theirsId);
    for (const earlier of state.merges.of(intoId))
      if (before.has(earlier)) state.merges.remove(intoId, earlier);
    state.merges.add(intoId, theirsId);
  }

  async #applyOrTakeBack(
    into: SandboxRecord,
    plan: MergePlan,
    intent: MergeIntent,
    writer: TreeWriter,
  ): Promise<void> {
    const { journal, log } = this.#core;
    const { trees, server } = this.#parts;
    const { undoSnapshotId: undoId, theirsSnapshotId, prefer } = intent;
    try {
      const theirs = trees.ofSnapshot(into, theirsSnapshotId);
      await applyMerge(server, plan, theirs, writer, prefer === null ? {} : { prefer });
    } catch (error) {
      const reason = (error as Error).message;
      const takenBack = await this.#takeBack(into, plan, trees.ofSnapshot(into, undoId), writer).then(
        () => true,
        (failure: unknown) => {
          log.error({ err: failure, sandbox: into.id }, 'a merge that failed could not be taken back');
          return false;
        },
      );
      journal.finish(into.id, (emit) =>
        emit('sandbox.merge_failed', into.id, { undo_snapshot_id: undoId, reason, taken_back: takenBack }),
      );
      if (takenBack) throw error;
      throw new CoppiceError('internal', `a merge into ${into.name} failed half-way: ${reason}`, {
        hint: `Restore the snapshot ${undoId}, which is ${into.name} as it was before.`,
        cause: error,
      });
    }
  }

  /** Each path that the merge was to write becomes what it was; what the sandbox itself wrote elsewhere stays. */
  async #takeBack(
    into: SandboxRecord,
    plan: MergePlan,
    before: LayeredTree,
    writer: TreeWriter,
  ): Promise<void> {
    const { disks } = this.#core;
    const { taker, trees } = this.#parts;
    const touched = new Set([...plan.changes, ...plan.conflicts].map((change) => change.path));
    const nowId = await taker.takeTemporary(into.id);
    try {
      const changes = [];
      for await (const change of diffTrees(this.#parts.server, trees.ofSnapshot(into, nowId), before))
        if (touched.has(change.path)) changes.push(change);
      await applyMerge(this.#parts.server, { changes, conflicts: [], skipped: [] }, before, writer);
    } finally {
      await disks.removeSnapshot(nowId);
    }
  }

  /** A sandbox that runs is written from inside, never behind its kernel's back. */
  #writer(into: SandboxRecord, plan: MergePlan): TreeWriter {
    const { machines, journal } = this.#core;
    const { trees, server } = this.#parts;
    const machine = machines.get(into.id);
    if (machine === undefined) return new UpperWriter(server, trees.ofDisk(into));
    const odd = plan.changes.find(({ path }) => !path.isWellFormed());
    if (odd !== undefined)
      throw new CoppiceError('unsupported', `${odd.path.toWellFormed()} has a name that is not UTF-8`, {
        hint: `Stop ${into.name} and merge then: its disk is written directly.`,
      });
    return new GuestTreeWriter(machine.guest, () => journal.step('merge.applying'));
  }
}

function conflict(from: SandboxRecord, into: SandboxRecord, conflicts: Merged['conflicts']): CoppiceError {
  const paths = conflicts.slice(0, 5).map(({ path }) => path);
  const more = conflicts.length > paths.length ? ` and ${conflicts.length - paths.length} more` : '';
  return new CoppiceError(
    'conflict',
    `${from.name} and ${into.name} both changed ${paths.join(', ')}${more}; nothing was written`,
    {
      details: { conflicts },
      hint: 'Choose a side with prefer: ours or theirs, or settle the files by hand first.',
    },
  );
}
