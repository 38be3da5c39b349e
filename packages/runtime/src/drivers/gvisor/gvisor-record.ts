import { readFileSync, writeFileSync } from 'node:fs';
import type { ProcessIdentity } from '../../machine/process-identity.ts';

/** Written beside the sandbox, for the daemon that finds it later. */
export interface GvisorRecord {
  readonly driver: 'gvisor';
  /** Its kernel; null until it is made. */
  readonly process: ProcessIdentity | null;
  /** Without it nobody reaches the sandbox. Unknown where an earlier version started it. */
  readonly relay?: ProcessIdentity;
  /** It was made, and nothing in it runs yet. */
  readonly waits?: boolean;
  /** Where directories are mounted in it. Unknown where an earlier version started it. */
  readonly mountedAt?: readonly string[];
}

export const writeRecord = (file: string, record: Omit<GvisorRecord, 'driver'>): void =>
  writeFileSync(file, JSON.stringify({ driver: 'gvisor', ...record } satisfies GvisorRecord));

/** Undefined where there is none of this driver's. */
export const readRecord = (file: string): GvisorRecord | undefined => {
  try {
    const record = JSON.parse(readFileSync(file, 'utf8')) as Partial<GvisorRecord>;
    return record.driver === 'gvisor' ? (record as GvisorRecord) : undefined;
  } catch {
    return undefined;
  }
};
