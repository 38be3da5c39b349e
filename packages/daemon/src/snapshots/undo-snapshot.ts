import type { SnapshotRecord } from '../db/snapshot-table.ts';

export const undoTag = 'undo';

/**
 * A sandbox as it was just before a merge or a restore changed it: files only, as keeping memory would take as long as a
 * checkpoint. Restored, it undoes them. The newest few of each sandbox are kept.
 */
export const undoOf = (what: 'merge' | 'restore', id: string, note: string) => ({
  name: `before-${what}-${id.slice(-6)}`,
  note,
  tags: [undoTag],
  memory: false,
  automatic: true,
});

export const isUndo = (record: Pick<SnapshotRecord, 'automatic' | 'tags'>): boolean =>
  record.automatic && record.tags.includes(undoTag);
