import { printable } from '@coppice/console';
import { type RestoreOutcome, type SnapshotRecord, shortId } from '../index.ts';
import type { JvsContext } from './jvs-context.ts';

/** What restore and undo say when they are done. */
export const answerRestored = (
  context: JvsContext,
  { snapshot_id: id, note }: SnapshotRecord,
  { saved, written, removed, adjusted }: RestoreOutcome,
): void => {
  const answer = {
    status: 'restored',
    snapshot_id: id,
    saved_snapshot_id: saved?.snapshot_id ?? null,
    written,
    removed,
    adjusted,
    warnings: context.warnings,
  };
  context.answer(answer, () => [
    `Restored ${shortId(id)}${note ? ` "${printable(note.split('\n')[0] ?? '')}"` : ''}: ${written} written, ${removed} removed, ${adjusted} adjusted`,
  ]);
};
