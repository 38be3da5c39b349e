import type { SnapshotRecord } from '../index.ts';

/**
 * What stands before each line of a history, newest first: a column for each line of descent, `*` for the snapshot itself. A
 * line that ends has no parent among those that are shown.
 */
export const historyGraph = (snapshots: readonly SnapshotRecord[]): string[] => {
  const shown = new Set(snapshots.map(({ snapshot_id: id }) => id));
  /** What each column waits for. */
  let columns: (string | null)[] = [];
  return snapshots.map(({ snapshot_id: id, parent_id: parent }) => {
    let own = columns.indexOf(id);
    if (own < 0) {
      own = columns.indexOf(null);
      if (own < 0) own = columns.length;
      columns[own] = id;
    }
    const drawn = columns
      .map((waitsFor, column) =>
        column === own ? '*' : waitsFor === id ? '/' : waitsFor === null ? ' ' : '|',
      )
      .join(' ');
    columns = columns.map((waitsFor, column) => {
      if (column === own) return parent && shown.has(parent) ? parent : null;
      return waitsFor === id ? null : waitsFor;
    });
    while (columns.at(-1) === null) columns.pop();
    return drawn;
  });
};
