import { readdirSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { EntryChange } from '../trees/tree-difference.ts';
import { forkWorktree, removeWorktree, renameWorktree } from './change-worktrees.ts';
import {
  type CollectionOptions,
  type CollectionPlan,
  type CollectionResult,
  finishCollection,
  loadPlan,
  planCollection,
  runCollection,
} from './collect-garbage.ts';
import { compareSnapshots } from './compare-snapshots.ts';
import { type Examination, type ExamineOptions, examineWorkspace } from './examine-workspace.ts';
import { insidePaths } from './inside-paths.ts';
import { type HistoryQuery, listHistory } from './list-history.ts';
import { checkName, checkTag } from './names.ts';
import { recoverCollection, recoverWorkspace } from './recover.ts';
import { newestTagged, resolveExact, resolveReference, shortId } from './resolve-reference.ts';
import { type RestoreOutcome, restoreWorktree } from './restore-worktree.ts';
import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';
import { StoredTree } from './stored-tree.ts';
import { takeSnapshot } from './take-snapshot.ts';
import { refuseTakenDirectory } from './taken-directory.ts';
import { type VerifyReport, verifySnapshots } from './verify-snapshots.ts';
import { requireWorktree, withWorktrees, withWorktreeToReplace } from './with-worktree.ts';
import { type SessionOptions, WorkspaceSession } from './workspace-session.ts';

export interface TakeOptions {
  readonly note?: string;
  readonly tags?: readonly string[];
  /** Relative to `from`, the directory in which the command was given. */
  readonly paths?: readonly string[];
  readonly from?: string;
}

export interface RestoreOptions {
  readonly discard?: boolean;
  /** On the disk when it is done: a power cut takes nothing of it. */
  readonly sync?: boolean;
  /** It is an undo, or a redo: the next of them goes on from there. */
  readonly step?: 'undo' | 'redo' | undefined;
  readonly paths?: readonly string[];
  readonly from?: string;
}

export type ExportOptions = Pick<RestoreOptions, 'paths' | 'from'>;

/** A versioned workspace: what the commands of `jvs` do, for programs. */
export class Workspace implements Disposable {
  readonly session: WorkspaceSession;

  private constructor(session: WorkspaceSession) {
    this.session = session;
  }

  /** The workspace around a directory. */
  static async open(options: SessionOptions): Promise<Workspace> {
    const session = new WorkspaceSession(options);
    try {
      await session.refresh();
    } catch (error) {
      session[Symbol.dispose]();
      throw error;
    }
    return new Workspace(session);
  }

  get worktree(): string {
    return this.session.worktree;
  }

  /** Finishes or undoes what killed commands left, and says so. A log that cannot be read is not for this to report. */
  async recover(): Promise<void> {
    const { session } = this;
    if (readdirSync(session.layout.intents).length > 0) await recoverWorkspace(session);
    if (session.logIsReadable && session.state.unfinishedCollection) await recoverCollection(session);
  }

  resolve(reference: string): SnapshotRecord {
    return resolveReference(this.session.state, this.worktree, reference);
  }

  /** REF, or REF:PATH. A colon that belongs to the reference is looked for first. */
  resolvePath(word: string): { snapshot: SnapshotRecord; path: string } {
    const { state } = this.session;
    for (let at = word.length; at > 0; at = word.lastIndexOf(':', at - 1)) {
      const snapshot = resolveExact(state, this.worktree, word.slice(0, at));
      if (snapshot) return { snapshot, path: word.slice(at + 1) };
    }
    const [reference = '', ...rest] = word.split(':');
    return { snapshot: this.resolve(reference), path: rest.join(':') };
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
    return withWorktrees(this.session, to === undefined ? [worktree] : [worktree, to], async () => {
      requireWorktree(this.session, worktree);
      return work();
    });
  }

  async snapshot(options: TakeOptions): Promise<SnapshotRecord> {
    const { layout, settings } = this.session;
    const payload = layout.payload(this.worktree);
    const paths = insidePaths(payload, options.from ?? payload, options.paths ?? [], true);
    const tags = [...(options.tags ?? []), ...settings.default_tags];
    return this.#alone(this.worktree, () =>
      takeSnapshot(this.session, { worktree: this.worktree, note: options.note ?? '', tags, paths }),
    );
  }

  async restore(target: SnapshotRecord, options: RestoreOptions = {}): Promise<RestoreOutcome> {
    const payload = this.session.layout.payload(this.worktree);
    const paths = insidePaths(payload, options.from ?? payload, options.paths ?? [], false);
    const discard = options.discard ?? !this.session.settings.auto_snapshot;
    return withWorktreeToReplace(this.session, this.worktree, async () => {
      requireWorktree(this.session, this.worktree);
      return restoreWorktree(this.session, {
        worktree: this.worktree,
        target,
        paths,
        discard,
        sync: options.sync ?? true,
        step: options.step,
      });
    });
  }

  /** What the worktree was before its last restore that was not undone, or before the last undo; without what `discard` threw away. */
  beforeLast(step: 'undo' | 'redo'): SnapshotRecord {
    const { state } = this.session;
    const last = state.worktrees.get(this.worktree)?.[step];
    const before = state.snapshots.get(last?.snapshot_id ?? '');
    if (before && before.payload_root_hash === last?.root_hash && !before.partial_paths) return before;
    const nothing =
      step === 'undo'
        ? 'there is no restore that was not undone'
        : 'nothing was undone since the last restore';
    const why = last ? 'what it was before is in no snapshot' : nothing;
    throw new CoppiceError('not_found', `nothing to ${step} in the worktree ${this.worktree}: ${why}`, {
      hint: 'See `jvs history`, and restore what you want.',
    });
  }

  /** What a snapshot holds, or some paths of it, in a directory that is not there yet, or empty. */
  async export(snapshot: SnapshotRecord, directory: string, options: ExportOptions = {}): Promise<void> {
    const { session } = this;
    refuseTakenDirectory(session.layout, directory);
    const payload = session.layout.payload(this.worktree);
    const paths = insidePaths(payload, options.from ?? payload, options.paths ?? [], false);
    using tree = this.stored(snapshot);
    for (const path of paths) tree.list(path, false);
    await session.withStore(true, async () => {
      const mode = (0o777 & ~process.umask()).toString(8);
      const only = paths.length > 0 ? paths : (snapshot.partial_paths ?? []);
      await session.request('export', { snapshot: snapshot.snapshot_id, dir: directory, mode, only });
    });
  }

  /** The caller disposes of it. */
  stored(snapshot: SnapshotRecord): StoredTree {
    return new StoredTree(this.session, snapshot);
  }

  async #setTags(
    snapshot: SnapshotRecord,
    change: (tags: readonly string[]) => readonly string[],
  ): Promise<readonly string[]> {
    return this.session.withStore(true, async () => {
      const id = snapshot.snapshot_id;
      const now = this.session.state.snapshots.get(id);
      if (!now) throw new CoppiceError('not_found', `the snapshot ${shortId(id)} is gone`);
      const tags = [...new Set(change(now.tags))];
      await this.session.commit({ type: 'tags', data: { snapshot_id: id, tags } });
      return tags;
    });
  }

  /** Answers the tags that it has then. */
  async tag(snapshot: SnapshotRecord, tags: readonly string[]): Promise<readonly string[]> {
    const added = tags.map(checkTag);
    return this.#setTags(snapshot, (now) => [...now, ...added]);
  }

  async untag(snapshot: SnapshotRecord, tags: readonly string[]): Promise<readonly string[]> {
    return this.#setTags(snapshot, (now) => {
      const missing = tags.find((tag) => !now.includes(tag));
      if (missing === undefined) return now.filter((tag) => !tags.includes(tag));
      throw new CoppiceError(
        'not_found',
        `the snapshot ${shortId(snapshot.snapshot_id)} has no tag ${JSON.stringify(missing)}`,
        { hint: `Its tags are: ${now.join(', ') || 'none'}.` },
      );
    });
  }

  async diff(before: SnapshotRecord | null, after: SnapshotRecord | null): Promise<EntryChange[]> {
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
    return withWorktrees(this.session, [checkName('worktree', name)], () =>
      forkWorktree(this.session, name, base),
    );
  }

  async removeWorktree(name: string, force: boolean): Promise<void> {
    await this.#alone(name, () => removeWorktree(this.session, name, force));
  }

  async renameWorktree(from: string, to: string): Promise<void> {
    checkName('worktree', to);
    await this.#alone(from, () => renameWorktree(this.session, from, to), to);
  }

  async verify(snapshots: readonly SnapshotRecord[]): Promise<VerifyReport[]> {
    return this.session.withStore(true, () => verifySnapshots(this.session, snapshots));
  }

  async doctor(options: ExamineOptions): Promise<Examination> {
    return examineWorkspace(this.session, options);
  }

  async planCollection(options: Partial<CollectionOptions> = {}): Promise<CollectionPlan> {
    const { keepHours = this.session.settings.gc_keep_hours, keepAncestors = true } = options;
    return this.session.withStore(true, async () =>
      planCollection(this.session, { keepHours, keepAncestors }),
    );
  }

  async runCollection(planId: string | undefined): Promise<CollectionResult> {
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
