import type { State } from '../db/state.ts';

/** All snapshots that a sandbox or a snapshot grew from or took in by a merge, itself included if it is one. */
export function ancestorsOf(state: State, id: string): Set<string> {
  const found = new Set<string>();
  const pending = [id];
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (found.has(at)) continue;
    const snapshot = state.snapshots.byId(at);
    const before = snapshot === undefined ? state.sandboxes.byId(at)?.baseSnapshotId : snapshot.parentId;
    if (snapshot !== undefined) found.add(at);
    if (before != null) pending.push(before);
    pending.push(...state.merges.of(at));
  }
  return found;
}

/**
 * Where the histories of two parted; null: only the image is common. Of several the newest: what comes before another is
 * older than it.
 */
export function commonAncestor(state: State, one: string, other: string): string | null {
  const ofOne = ancestorsOf(state, one);
  const common = [...ancestorsOf(state, other)].filter((id) => ofOne.has(id));
  return common.sort().at(-1) ?? null;
}
