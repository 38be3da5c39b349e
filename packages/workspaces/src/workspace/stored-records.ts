import { listIntents } from './intent.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/** The record of a snapshot, which ends the pack that was written for it (native/tree/records.h). */
export interface StoredRecord {
  readonly pack: string;
  readonly offset: number;
  readonly length: number;
  readonly snapshot_id: string;
  /** What the log says of that snapshot. `unknown`: nothing. */
  readonly fate: 'live' | 'collected' | 'unknown';
}

export const listRecords = async (session: WorkspaceSession): Promise<readonly StoredRecord[]> =>
  (await session.request<{ records: StoredRecord[] }>('records')).records;

/** Snapshots that the log lost. What a command is about to write down is not among them. */
export const lostRecords = (session: WorkspaceSession, records: readonly StoredRecord[]): StoredRecord[] => {
  const unknown = records.filter(({ fate }) => fate === 'unknown');
  if (unknown.length === 0) return [];
  const intended = new Set(
    listIntents(session.layout).flatMap((intent) => (intent.operation === 'snapshot' ? [intent.pack] : [])),
  );
  return unknown.filter(({ pack }) => !intended.has(pack));
};
