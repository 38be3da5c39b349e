import { readFileSync, writeFileSync } from 'node:fs';
import type { ProcessIdentity } from '../../machine/process-identity.ts';

/** Written beside the sandbox, for the daemon that finds it later. The process is null until it runs. */
export interface GvisorRecord {
  readonly driver: 'gvisor';
  readonly process: ProcessIdentity | null;
}

export const writeRecord = (file: string, process: ProcessIdentity | null): void =>
  writeFileSync(file, JSON.stringify({ driver: 'gvisor', process } satisfies GvisorRecord));

/** Undefined where there is none of this driver's. */
export const readRecord = (file: string): GvisorRecord | undefined => {
  try {
    const record = JSON.parse(readFileSync(file, 'utf8')) as Partial<GvisorRecord>;
    return record.driver === 'gvisor' ? (record as GvisorRecord) : undefined;
  } catch {
    return undefined;
  }
};
