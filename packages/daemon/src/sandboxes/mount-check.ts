import { type BigIntStats, existsSync, lstatSync } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError, type Mount } from '@coppice/protocol';
import type { HostMount } from '@coppice/runtime';

/**
 * Which directory this is, for good: whoever may rename above it can put another one at its path later. Drivers compare it
 * when they open the directory (native/mounts).
 */
const identityOf = ({ dev, ino, birthtimeNs }: BigIntStats): string => `${dev}:${ino}:${birthtimeNs}`;

/** Directories of the host that a sandbox is given, bound to what they are now. */
export const bindMounts = (mounts: readonly Mount[], home: string): Promise<HostMount[]> =>
  Promise.all(
    mounts.map(async ({ host_path: hostPath, guest_path: guestPath, read_only: readOnly }) => ({
      hostPath,
      guestPath,
      readOnly,
      identity: await identityAt(hostPath, home),
    })),
  );

/** It must be just what its path says. */
async function identityAt(path: string, home: string): Promise<string> {
  const stat = await lstat(path, { bigint: true }).catch((cause: unknown) => {
    throw new CoppiceError('not_found', `the directory ${path} does not exist`, {
      hint: 'Make the directory first; `jvs init NAME` makes one with a history, in NAME/main.',
      cause,
    });
  });
  if (!stat.isDirectory()) throw new CoppiceError('invalid_argument', `${path} is not a directory`);
  const real = await realpath(path);
  if (real !== path)
    throw new CoppiceError('invalid_argument', `the path ${path} leads through a symbolic link`, {
      hint: `Give the path itself: ${real}`,
    });
  if (isBelow(path, home) || isBelow(home, path))
    throw new CoppiceError('invalid_argument', `the directory ${path} and the home of the daemon overlap`, {
      hint: `A sandbox must not reach the disks and tokens of others. Give a directory apart from ${home}.`,
    });
  if (existsSync(join(path, '.jvs')))
    throw new CoppiceError('invalid_argument', `${path} holds the history of a workspace`, {
      hint: `A sandbox must not be able to rewrite it. Give one of its worktrees: ${join(path, 'main')}`,
    });
  return identityOf(stat);
}

const isBelow = (path: string, top: string): boolean => `${path}/`.startsWith(top === '/' ? top : `${top}/`);

/** For sandboxes that were made before identities were noted: what stands there now. Undefined where nothing does. */
const identityNow = (path: string): string | undefined => {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat?.isDirectory() ? identityOf(stat) : undefined;
};

/** The mounts with those bound that were not; undefined where that changes nothing. */
export const boundNow = (mounts: readonly HostMount[]): HostMount[] | undefined => {
  if (mounts.every(({ identity }) => identity != null)) return undefined;
  return mounts.map((mount) => ({
    ...mount,
    identity: mount.identity ?? identityNow(mount.hostPath) ?? null,
  }));
};
