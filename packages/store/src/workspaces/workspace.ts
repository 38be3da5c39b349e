import { readdirSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { EntryChange } from '../trees/tree-difference.ts';
import type { CollectionPlan, CollectionResult } from './collect-garbage.ts';
import type { CreateWorkspaceOptions } from './create-workspace.ts';
import type { Examination, ExamineOptions } from './examine-workspace.ts';
import { type HistoryQuery, listHistory } from './list-history.ts';
import { newestTagged, resolveExact, resolveReference, shortId } from './resolve-reference.ts';
import type { RestoreOutcome } from './restore-worktree.ts';
import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';
import type { VerifyReport } from './verify-snapshots.ts';
import { type RepositoryRecord, type SessionOptions, WorkspaceSession } from './workspace-session.ts';

export interface TakeOptions {
  readonly note?: string;
  readonly tags?: readonly string[];
  /** Relative to `from`, the directory in which the command was given. */
  readonly paths?: readonly string[];
  readonly from?: string;
}

export interface RestoreOptions {
  readonly discard?: boolean;
  readonly paths?: readonly string[];
  readonly from?: string;
}

/**
 * A versioned workspace: what the commands of `jvs` do, for programs. Reading loads the log only; what touches files is
 * loaded when it is needed, so that a short command stays short.
 */
export class Workspace implements Disposable {
  readonly session: WorkspaceSession;

  constructor(options: SessionOptions) {
    this.session = new WorkspaceSession(options);
  }

  get worktree(): string {
    return this.session.worktree;
  }

  /** Finishes or undoes what killed commands left, and says so. A log that cannot be read is not for this to report. */
  async recover(): Promise<void> {
    const { session } = this;
    if (readdirSync(session.layout.intents).length > 0) {
      await (await import('./recover.ts')).recoverWorkspace(session);
    }
    if (session.logIsReadable && session.state.unfinishedCollection) {
      await (await import('./recover.ts')).recoverCollection(session);
    }
  }

  resolve(reference: string): SnapshotRecord {
    return resolveReference(this.session.state, this.worktree, reference);
  }

  latestTagged(tag: string): SnapshotRecord {
    const found = newestTagged(this.session.state, tag);
    if (found) return found;
    throw new CoppiceError('not_found', `no snapshot carries the tag ${JSON.stringify(tag)}`, {
      hint: 'See `jvs history`.',
    });
  }

  history(query: Omit<HistoryQuery, 'worktree'>): SnapshotRecord[] {
    return listHistory(this.session.state, { ...query, worktree: this.worktree });
  }

  async #alone<Result>(worktree: string, work: () => Promise<Result>, to?: string): Promise<Result> {
    const { requireWorktree, withWorktrees } = await import('./with-worktree.ts');
    return withWorktrees(this.session, to === undefined ? [worktree] : [worktree, to], async () => {
      requireWorktree(this.session, worktree);
      return work();
    });
  }

  async snapshot(options: TakeOptions): Promise<SnapshotRecord> {
    const { checkPaths, takeSnapshot } = await import('./take-snapshot.ts');
    const { layout, settings } = this.session;
    const payload = layout.payload(this.worktree);
    const paths = checkPaths(payload, options.from ?? payload, options.paths ?? [], true);
    const tags = [...(options.tags ?? []), ...settings.default_tags];
    return this.#alone(this.worktree, () =>
      takeSnapshot(this.session, { worktree: this.worktree, note: options.note ?? '', tags, paths }),
    );
  }

  async restore(target: SnapshotRecord, options: RestoreOptions = {}): Promise<RestoreOutcome> {
    const { restoreWorktree } = await import('./restore-worktree.ts');
    const { checkPaths } = await import('./take-snapshot.ts');
    const payload = this.session.layout.payload(this.worktree);
    const paths = checkPaths(payload, options.from ?? payload, options.paths ?? [], false);
    const discard = options.discard ?? !this.session.settings.auto_snapshot;
    const { requireWorktree, withWorktreeToReplace } = await import('./with-worktree.ts');
    return withWorktreeToReplace(this.session, this.worktree, async () => {
      requireWorktree(this.session, this.worktree);
      return restoreWorktree(this.session, {
        worktree: this.worktree,
        target,
        paths: paths.length > 0 ? paths : null,
        discard,
      });
    });
  }

  async diff(before: SnapshotRecord, after: SnapshotRecord | null): Promise<EntryChange[]> {
    const { compareSnapshots } = await import('./compare-snapshots.ts');
    return compareSnapshots(this.session, this.worktree, before, after);
  }

  /** One word is a reference when it is HEAD, an id or a tag, else the name of the new worktree. */
  forkArguments(first?: string, second?: string): { base: SnapshotRecord; name: string } {
    const { state } = this.session;
    if (first !== undefined && second !== undefined) return { base: this.resolve(first), name: second };
    const base = first === undefined ? undefined : resolveExact(state, this.worktree, first);
    if (base) return { base, name: `fork-${shortId(base.snapshot_id)}` };
    const head = this.resolve('HEAD');
    return { base: head, name: first ?? `fork-${shortId(head.snapshot_id)}` };
  }

  async fork(name: string, base: SnapshotRecord | undefined): Promise<WorktreeRecord> {
    const { withWorktrees } = await import('./with-worktree.ts');
    const { checkName } = await import('./names.ts');
    const { forkWorktree } = await import('./fork-worktree.ts');
    checkName('worktree', name);
    return withWorktrees(this.session, [name], () => forkWorktree(this.session, name, base));
  }

  async removeWorktree(name: string, force: boolean): Promise<void> {
    const { removeWorktree } = await import('./change-worktrees.ts');
    await this.#alone(name, () => removeWorktree(this.session, name, force));
  }

  async renameWorktree(from: string, to: string): Promise<void> {
    const { renameWorktree } = await import('./change-worktrees.ts');
    const { checkName } = await import('./names.ts');
    checkName('worktree', to);
    await this.#alone(from, () => renameWorktree(this.session, from, to), to);
  }

  async verify(snapshots: readonly SnapshotRecord[]): Promise<VerifyReport[]> {
    const { verifySnapshots } = await import('./verify-snapshots.ts');
    return this.session.withStore(true, () => verifySnapshots(this.session, snapshots));
  }

  async doctor(options: ExamineOptions): Promise<Examination> {
    return (await import('./examine-workspace.ts')).examineWorkspace(this.session, options);
  }

  async planCollection(keepHours = this.session.settings.gc_keep_hours): Promise<CollectionPlan> {
    const { planCollection } = await import('./collect-garbage.ts');
    return this.session.withStore(true, async () => planCollection(this.session, keepHours));
  }

  async runCollection(planId: string | undefined): Promise<CollectionResult> {
    const { finishCollection, loadPlan, runCollection } = await import('./collect-garbage.ts');
    return this.session.withStore(false, async () => {
      const finished = await finishCollection(this.session);
      if (finished && (planId === undefined || planId === finished.plan_id)) return finished;
      return runCollection(this.session, loadPlan(this.session, planId));
    });
  }

  async pin(snapshot: SnapshotRecord, reason: string): Promise<void> {
    await this.session.commit({ type: 'pin', data: { snapshot_id: snapshot.snapshot_id, reason } });
  }

  async unpin(snapshot: SnapshotRecord): Promise<void> {
    if (!this.session.state.pins.has(snapshot.snapshot_id)) {
      throw new CoppiceError('not_found', `the snapshot ${shortId(snapshot.snapshot_id)} is not pinned`);
    }
    await this.session.commit({ type: 'unpin', data: { snapshot_id: snapshot.snapshot_id } });
  }

  [Symbol.dispose](): void {
    this.session[Symbol.dispose]();
  }
}

export const createWorkspace = async (
  options: CreateWorkspaceOptions,
): Promise<RepositoryRecord & { root: string }> =>
  (await import('./create-workspace.ts')).createWorkspace(options);
