import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProcessIdentity } from '../../machine/process-identity.ts';

/** What a daemon must know to find a sandbox that an earlier one started. */
export interface MachineRecord {
  readonly driver: 'container';
  /** Pids and start times mean nothing after a reboot. */
  readonly bootId: string;
  /** Which range of ids on the host is the sandbox's. */
  readonly slot: number;
  /** Absent while it starts. */
  readonly init?: ProcessIdentity;
  /** What bubblewrap left beside it, and which is to be ended. */
  readonly monitor?: ProcessIdentity;
}

const fileName = 'machine.json';

export function readMachineRecord(runDir: string): MachineRecord | undefined {
  try {
    const record = JSON.parse(readFileSync(join(runDir, fileName), 'utf8')) as MachineRecord;
    return record.driver === 'container' ? record : undefined;
  } catch (error) {
    // Written in one step; text that is not ours belongs to a machine that is not ours either.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export function writeMachineRecord(runDir: string, record: MachineRecord): void {
  const file = join(runDir, fileName);
  writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

export const readBootId = (): string => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
