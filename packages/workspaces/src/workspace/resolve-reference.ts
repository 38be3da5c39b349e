import { CoppiceError } from '@coppice/protocol/errors';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceState } from './workspace-state.ts';

const shortIdLength = 8;
export const shortId = (id: string): string => id.slice(0, shortIdLength);

export const describeSnapshot = (snapshot: SnapshotRecord): string =>
  [
    shortId(snapshot.snapshot_id),
    snapshot.created_at,
    snapshot.note.split('\n')[0],
    ...snapshot.tags.map((tag) => `[${tag}]`),
  ]
    .filter(Boolean)
    .join('  ');

const ambiguous = (reference: string, candidates: readonly SnapshotRecord[]): CoppiceError =>
  new CoppiceError(
    'ambiguous',
    `${JSON.stringify(reference)} fits ${candidates.length} snapshots:\n${candidates
      .slice(0, 10)
      .map((candidate) => `  ${describeSnapshot(candidate)}`)
      .join('\n')}`,
    {
      hint: `Use an id; ${shortIdLength} characters are enough.`,
      details: { candidates: candidates.map((candidate) => candidate.snapshot_id) },
    },
  );

/** HEAD, an id or the beginning of one, or a tag: what names one snapshot without looking at notes. */
export const resolveExact = (
  state: WorkspaceState,
  worktree: string,
  reference: string,
): SnapshotRecord | undefined => {
  if (reference === 'HEAD') {
    const head = state.worktrees.get(worktree)?.head_snapshot_id;
    const snapshot = head ? state.snapshots.get(head) : undefined;
    if (snapshot) return snapshot;
    throw new CoppiceError(
      'not_found',
      `the worktree ${worktree} has no snapshot yet, so HEAD names nothing`,
      {
        hint: 'Take one with `jvs snapshot`.',
      },
    );
  }
  const exact = state.snapshots.get(reference);
  if (exact) return exact;
  const tagged = newestTagged(state, reference);
  if (tagged) return tagged;
  if (!/^[0-9a-z]{4,}$/.test(reference)) return undefined;
  const found = [...state.snapshots.values()].filter((snapshot) =>
    snapshot.snapshot_id.startsWith(reference),
  );
  if (found.length > 1) throw ambiguous(reference, found);
  return found[0];
};

export const newestTagged = (state: WorkspaceState, tag: string): SnapshotRecord | undefined =>
  [...state.snapshots.values()].findLast((snapshot) => snapshot.tags.includes(tag));

/** The one rule for every command: HEAD, id, tag (the newest), beginning of an id, beginning of a note. */
export const resolveReference = (
  state: WorkspaceState,
  worktree: string,
  reference: string,
): SnapshotRecord => {
  const exact = resolveExact(state, worktree, reference);
  if (exact) return exact;
  const noted = reference
    ? [...state.snapshots.values()].filter(({ note }) => note.startsWith(reference))
    : [];
  const same = noted.filter(({ note }) => note === reference);
  const [only] = same.length === 1 ? same : noted;
  if (only && (same.length === 1 || noted.length === 1)) return only;
  if (noted.length > 1) throw ambiguous(reference, noted);
  throw new CoppiceError('not_found', `no snapshot is called ${JSON.stringify(reference)}`, {
    hint: 'See `jvs history`: use an id, a tag, or the beginning of a note.',
  });
};
