import { CoppiceError } from '@coppice/protocol/errors';
import { listRecords, lostRecords, type StoredRecord } from './stored-records.ts';
import { checkLog, damagedTrees } from './verify-snapshots.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/**
 * Throws unless the log is whole and all that it names can be followed: what a damaged log or tree no longer names must not be
 * taken for garbage. The caller holds the store's lock alone. Answers the records of all packs.
 */
export const requireSoundStore = async (session: WorkspaceSession): Promise<readonly StoredRecord[]> => {
  const refuse = (what: string, hint: string): CoppiceError =>
    new CoppiceError('corrupt', `${what}: nothing was freed`, { hint });
  const [broken] = (await checkLog(session)).filter(({ torn }) => !torn);
  if (broken) {
    throw refuse(
      `line ${broken.line} of the log ${broken.problem}`,
      'Run `jvs doctor --repair`: it rebuilds the log.',
    );
  }
  const records = await listRecords(session);
  const lost = lostRecords(session, records);
  if (lost.length > 0) {
    const ids = lost.map(({ snapshot_id: id }) => id).join(', ');
    throw refuse(`the log has lost snapshots: ${ids}`, 'Run `jvs doctor --repair`: it adds them again.');
  }
  const [damaged] = await damagedTrees(session);
  if (damaged) {
    throw refuse(
      `snapshot ${damaged.snapshot_id} is damaged (${damaged.problem})`,
      'Run `jvs verify --all`; put the damaged files back from a backup.',
    );
  }
  return records;
};
