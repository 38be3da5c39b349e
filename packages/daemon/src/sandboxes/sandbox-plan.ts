import type { SandboxRecord } from '../db/sandbox-table.ts';

/** What a new sandbox shall be; the creator adds what only it knows. */
export type SandboxPlan = Omit<
  SandboxRecord,
  | 'id'
  | 'state'
  | 'failure'
  | 'address'
  | 'pauseKeep'
  | 'createdAtMs'
  | 'startedAtMs'
  | 'activeAtMs'
  | 'lifetimeWarned'
>;
