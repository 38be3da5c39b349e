import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { HostMount } from '../../driver.ts';

/** What a restore must know besides CRIU's images, which stand beside it. */
export interface CheckpointRecord {
  /** The agent that was PID 1: memory holds what it has changed of its program, and the rest is read from the file again. */
  readonly agent: string;
  /** Places inside at which something of the host was mounted. */
  readonly mounts: readonly string[];
  /** `close` where a connection left the sandbox: CRIU keeps all of them or none. */
  readonly tcp: 'keep' | 'close';
  /** Its processes are under the filter that keeps set-id bits out of directories of the host; it cannot be put on them later. */
  readonly watchesModes?: boolean;
}

const fileName = 'coppice.json';

export const writeCheckpointRecord = (checkpointDir: string, record: CheckpointRecord): void =>
  writeFileSync(join(checkpointDir, fileName), JSON.stringify(record), { mode: 0o600 });

export const readCheckpointRecord = (checkpointDir: string): CheckpointRecord =>
  JSON.parse(readFileSync(join(checkpointDir, fileName), 'utf8')) as CheckpointRecord;

/** Undefined where a directory is no checkpoint of a container, or one that was cut short: nothing can go on with it. */
export const findCheckpointRecord = (checkpointDir: string): CheckpointRecord | undefined =>
  existsSync(join(checkpointDir, fileName)) ? readCheckpointRecord(checkpointDir) : undefined;

/** The mounts and filters of processes are what they were: a directory of the host can be put back, not added. */
export const checkMemoryMounts = (
  { mounts, watchesModes = false }: CheckpointRecord,
  wanted: readonly HostMount[] = [],
): void => {
  const added = wanted.find(({ guestPath }) => !mounts.includes(guestPath));
  const missing =
    added !== undefined
      ? `it was kept of a sandbox that had none at ${added.guestPath}`
      : wanted.length > 0 && !watchesModes
        ? 'an earlier version kept it, which let set-id bits through to the host'
        : undefined;
  if (missing === undefined) return;
  throw new CoppiceError('unsupported', `the memory cannot go on with a directory of the host: ${missing}`, {
    hint: 'Take a snapshot without memory, and use that.',
  });
};
