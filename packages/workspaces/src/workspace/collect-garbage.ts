import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { plural } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { writeFileAtomically } from './atomic-file.ts';
import { listIntents } from './intent.ts';
import { killPoint } from './kill-point.ts';
import { isName } from './names.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import { requireSoundStore } from './sound-store.ts';
import { NeededObjects, storedBlobs, storedPacks, storedTrees } from './stored-objects.ts';
import { listRecords, type StoredRecord } from './stored-records.ts';
import type { WorkspaceSession } from './workspace-session.ts';

type Protection = 'head' | 'latest' | 'ancestor' | 'tag' | 'pin' | 'recent' | 'intent';

export interface CollectionOptions {
  readonly keepHours: number;
  /** Keep everything that the worktrees grew from. */
  readonly keepAncestors: boolean;
}

export interface CollectionPlan {
  readonly plan_id: string;
  readonly created_at: string;
  readonly keep_hours: number;
  readonly keep_ancestors: boolean;
  readonly to_delete: readonly string[];
  readonly protected: Readonly<Record<string, readonly Protection[]>>;
  readonly deletable_bytes: number;
}

export interface CollectionResult {
  readonly plan_id: string;
  readonly deleted: number;
  readonly freed_bytes: number;
}

const hourMs = 60 * 60 * 1000;
/** Below this a hole in a pack is not worth a call. */
const smallestHole = 4096;

/** Says of any snapshot why it must stay. */
const protectionsOf = (
  { layout, state }: WorkspaceSession,
  { keepHours, keepAncestors }: CollectionOptions,
): ((snapshot: SnapshotRecord) => Protection[]) => {
  const worktrees = [...state.worktrees.values()];
  const heads = new Set(worktrees.map((worktree) => worktree.head_snapshot_id));
  const latest = new Set(worktrees.map((worktree) => worktree.latest_snapshot_id));
  const ancestors = new Set<string>();
  for (const tip of keepAncestors ? [...heads, ...latest] : []) {
    let at = state.snapshots.get(tip ?? '')?.parent_id;
    for (; at && !ancestors.has(at); at = state.snapshots.get(at)?.parent_id) ancestors.add(at);
  }
  const intended = new Set(
    listIntents(layout).map((intent) => ('snapshotId' in intent ? intent.snapshotId : undefined)),
  );
  const keepFrom = Date.now() - keepHours * hourMs;
  return ({ snapshot_id: id, tags, created_at: createdAt }) => {
    const found: Protection[] = [];
    if (heads.has(id)) found.push('head');
    if (latest.has(id)) found.push('latest');
    if (ancestors.has(id)) found.push('ancestor');
    if (tags.length > 0) found.push('tag');
    if (state.pins.has(id)) found.push('pin');
    if (Date.parse(createdAt) > keepFrom) found.push('recent');
    if (intended.has(id)) found.push('intent');
    return found;
  };
};

/** What would be freed if only `kept` remained. */
const freeable = async (session: WorkspaceSession, kept: Iterable<SnapshotRecord>): Promise<number> => {
  const needed = new NeededObjects(session.layout, kept, await listRecords(session));
  let bytes = 0;
  for (const blob of storedBlobs(session.layout)) if (!needed.blobs.has(blob.name)) bytes += blob.bytes;
  for (const pack of storedPacks(session.layout)) {
    const free = needed
      .unneeded(pack.name, statSync(pack.path).size)
      .reduce((sum, { from, to }) => sum + to - from, 0);
    bytes += Math.min(pack.bytes, free);
  }
  return bytes;
};

export const planCollection = async (
  session: WorkspaceSession,
  options: CollectionOptions,
): Promise<CollectionPlan> => {
  const { layout, state } = session;
  const kept: SnapshotRecord[] = [];
  const toDelete: string[] = [];
  const protectedBy: Record<string, Protection[]> = {};
  const protections = protectionsOf(session, options);
  for (const snapshot of state.snapshots.values()) {
    const reasons = protections(snapshot);
    if (reasons.length === 0) toDelete.push(snapshot.snapshot_id);
    else {
      kept.push(snapshot);
      protectedBy[snapshot.snapshot_id] = reasons;
    }
  }
  const plan: CollectionPlan = {
    plan_id: crypto.randomUUID().slice(-12),
    created_at: new Date().toISOString(),
    keep_hours: options.keepHours,
    keep_ancestors: options.keepAncestors,
    to_delete: toDelete,
    protected: protectedBy,
    deletable_bytes: await freeable(session, kept),
  };
  writeFileAtomically(join(layout.plans, `${plan.plan_id}.json`), `${JSON.stringify(plan)}\n`);
  return plan;
};

const readPlan = (path: string): CollectionPlan => {
  try {
    const plan = JSON.parse(readFileSync(path, 'utf8')) as CollectionPlan;
    const good =
      isName(plan.plan_id) &&
      typeof plan.created_at === 'string' &&
      typeof plan.keep_ancestors === 'boolean' &&
      plan.to_delete.every((id) => typeof id === 'string');
    if (good) return plan;
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
  }
  throw new CoppiceError('corrupt', `the plan ${path} cannot be read`, {
    hint: 'Delete it, and make another with `jvs gc plan`.',
  });
};

export const loadPlan = (session: WorkspaceSession, planId: string | undefined): CollectionPlan => {
  const { plans } = session.layout;
  const all = readdirSync(plans)
    .filter((name) => name.endsWith('.json'))
    .map((name) => readPlan(join(plans, name)))
    .sort((a, b) => a.created_at.localeCompare(b.created_at));
  const plan = planId === undefined ? all.at(-1) : all.find((candidate) => candidate.plan_id === planId);
  if (plan) return plan;
  const what = planId === undefined ? 'there is no plan yet' : `there is no plan ${JSON.stringify(planId)}`;
  throw new CoppiceError('not_found', what, {
    hint: 'Make one with `jvs gc plan`, look at it, then run it.',
  });
};

/** Frees what no snapshot needs. Can be cut off and run again at any point. */
const sweep = async (session: WorkspaceSession, records: readonly StoredRecord[]): Promise<number> => {
  const { layout, program, state } = session;
  const needed = new NeededObjects(layout, state.snapshots.values(), records);
  // However small: a log that is rebuilt must not bring back what was collected.
  const collected = new Map(
    records.flatMap((record) => (record.fate === 'collected' ? [[record.pack, record]] : [])),
  );
  let freed = 0;
  for (const tree of storedTrees(layout)) {
    if (needed.trees.has(tree)) continue;
    await program.request('remove', { path: layout.tree(tree) });
    rmSync(layout.treeIndex(tree), { force: true });
    killPoint('gc-tree-removed');
  }
  for (const blob of storedBlobs(layout)) {
    if (needed.blobs.has(blob.name)) continue;
    rmSync(blob.path, { force: true });
    freed += blob.bytes;
    killPoint('gc-blob-removed');
  }
  const { packs } = needed;
  for (const pack of storedPacks(layout)) {
    if (packs.has(pack.name)) {
      const record = collected.get(pack.name);
      if (record)
        await program.request('punch', {
          path: pack.path,
          offset: record.offset,
          len: record.length,
          erase: true,
        });
      for (const { from, to } of needed.unneeded(pack.name, statSync(pack.path).size)) {
        if (to - from >= smallestHole)
          await program.request('punch', { path: pack.path, offset: from, len: to - from });
      }
      freed += Math.max(0, pack.bytes - statSync(pack.path).blocks * 512);
    } else {
      rmSync(pack.path, { force: true });
      freed += pack.bytes;
    }
    killPoint('gc-pack-freed');
  }
  return freed;
};

const refuseWhatChanged = (session: WorkspaceSession, plan: CollectionPlan): void => {
  const { state } = session;
  const protections = protectionsOf(session, { keepHours: 0, keepAncestors: plan.keep_ancestors });
  const changed = plan.to_delete.filter((id) => {
    const snapshot = state.snapshots.get(id);
    return snapshot && protections(snapshot).length > 0;
  });
  if (changed.length === 0) return;
  throw new CoppiceError(
    'conflict',
    `the plan ${plan.plan_id} deletes ${plural(changed.length, 'snapshot')} that a worktree, tag or pin protects now`,
    {
      hint: 'Nothing was deleted. Make a new plan with `jvs gc plan`.',
      details: { snapshots: changed },
    },
  );
};

/** The caller holds the store's lock alone. First the snapshots leave history, then their space is freed. */
export const runCollection = async (
  session: WorkspaceSession,
  plan: CollectionPlan,
): Promise<CollectionResult> => {
  refuseWhatChanged(session, plan);
  await requireSoundStore(session);
  const present = plan.to_delete.filter((id) => session.state.snapshots.has(id));
  killPoint('gc-begin');
  await session.commit({
    type: 'gc_mark',
    data: { plan_id: plan.plan_id, snapshots: present, pid: process.pid },
  });
  killPoint('gc-marked');
  const freed = await sweep(session, await listRecords(session));
  await session.commit({ type: 'gc_done', data: { plan_id: plan.plan_id, freed_bytes: freed } });
  rmSync(join(session.layout.plans, `${plan.plan_id}.json`), { force: true });
  return { plan_id: plan.plan_id, deleted: present.length, freed_bytes: freed };
};

/** Goes on where a collection was cut off. Answers what that freed, when there was one. */
export const finishCollection = async (session: WorkspaceSession): Promise<CollectionResult | undefined> => {
  const plan = session.state.unfinishedCollection?.planId;
  if (!plan) return undefined;
  const freed = await sweep(session, await requireSoundStore(session));
  await session.commit({ type: 'gc_done', data: { plan_id: plan, freed_bytes: freed } });
  rmSync(join(session.layout.plans, `${plan}.json`), { force: true });
  session.notice(`recovered: finished a collection that was cut off (freed ${plural(freed, 'byte')})`);
  return { plan_id: plan, deleted: 0, freed_bytes: freed };
};
