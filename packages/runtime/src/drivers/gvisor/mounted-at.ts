import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError, maxMounts, mountPointsSchema, workDirectory } from '@coppice/protocol';
import type { HostMount } from '../../driver.ts';

/** A place inside that the bundle mounts something on. Without a directory of the host it is the sandbox's own. */
export interface PlacedMount {
  readonly guestPath: string;
  readonly host?: HostMount;
}

const fileName = 'coppice-mounts.json';

/** Beside the memory: where the sandbox had mounts. Memory goes on only where something is mounted there again. */
export const writeMountedAt = (checkpointDir: string, places: readonly string[]): void =>
  writeFileSync(join(checkpointDir, fileName), JSON.stringify(places), { mode: 0o600 });

const readMountedAt = (checkpointDir: string): string[] => {
  let text: string;
  try {
    text = readFileSync(join(checkpointDir, fileName), 'utf8');
  } catch {
    // Kept by an earlier version, where /workspace was the only place.
    return [workDirectory];
  }
  try {
    // A stranger may have written it, with the memory.
    return mountPointsSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new CoppiceError('invalid_argument', 'the memory does not say where directories were mounted', {
      hint: 'Use the snapshot without its memory.',
      cause,
    });
  }
};

export const placed = (mounts: readonly HostMount[] = []): PlacedMount[] =>
  mounts.map((host) => ({ guestPath: host.guestPath, host }));

/** What is mounted when memory goes on: what is wanted, and the sandbox's own directories where the memory had more. */
export const placedForMemory = (
  mounts: readonly HostMount[] | undefined,
  checkpointDir: string,
): PlacedMount[] => {
  const wanted = placed(mounts);
  const own = [...new Set(readMountedAt(checkpointDir))]
    .filter((guestPath) => !wanted.some((mount) => mount.guestPath === guestPath))
    .map((guestPath) => ({ guestPath }));
  const all = [...wanted, ...own];
  const isInside = all.some((one) => all.some((other) => one.guestPath.startsWith(`${other.guestPath}/`)));
  if (isInside || all.length > maxMounts)
    throw new CoppiceError(
      'unsupported',
      isInside
        ? 'the memory had a directory mounted inside or around one that is to be mounted now'
        : `the memory and the new mounts are more than ${maxMounts} together`,
      { hint: 'Use the snapshot without its memory.' },
    );
  return all;
};
