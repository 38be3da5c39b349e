import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProcessIdentity } from '../../machine/process-identity.ts';

/** What a daemon must know to find a sandbox that an earlier one started. */
export interface MachineRecord {
  readonly driver: 'container';
  /** Pids and start times mean nothing after a reboot. */
  readonly bootId: string;
  /** Which range of ids on the host is the sandbox's. */
  readonly slot: number;
  /** Which agent is its PID 1; absent where an earlier version started it. */
  readonly agent?: string;
  /** It has a workspace, and set-id bits are kept out of it; not so where an earlier version started it. */
  readonly watchesModes?: boolean;
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
    // Written in one step each time; text that is not ours, or a file in place of the directory, is no machine of ours either.
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Into a directory that has none yet. */
export function writeMachineRecord(runDir: string, record: MachineRecord): void {
  writeFileSync(join(runDir, fileName), JSON.stringify(record), { mode: 0o600 });
}

/**
 * Adds to what was written. The longer text goes over the shorter in one write, which no kill can cut in two; a rename over the
 * old file would have the filesystem write both out at once.
 */
export function completeMachineRecord(
  runDir: string,
  record: MachineRecord,
  found: Pick<MachineRecord, 'init' | 'monitor'>,
): void {
  writeFileSync(join(runDir, fileName), JSON.stringify({ ...record, ...found }), { flag: 'r+' });
}

export const readBootId = (): string => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
