import { type BigIntStats, existsSync, lstatSync } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';

/**
 * Which directory this is, for good: whoever may rename above it can put another one at its path later. Drivers compare it
 * when they open the directory (native/place).
 */
const identityOf = ({ dev, ino, birthtimeNs }: BigIntStats): string => `${dev}:${ino}:${birthtimeNs}`;

/** A directory of the host that a sandbox gets as its /workspace: it must be just what its path says. Returns its identity. */
export async function checkWorkspace(path: string, home: string): Promise<string> {
  const stat = await lstat(path, { bigint: true }).catch((cause: unknown) => {
    throw new CoppiceError('not_found', `the workspace ${path} does not exist`, {
      hint: 'Make the directory first; `jvs init NAME` makes one with a history, in NAME/main.',
      cause,
    });
  });
  if (!stat.isDirectory())
    throw new CoppiceError('invalid_argument', `the workspace ${path} is not a directory`);
  const real = await realpath(path);
  if (real !== path)
    throw new CoppiceError('invalid_argument', `the workspace ${path} leads through a symbolic link`, {
      hint: `Give the path itself: ${real}`,
    });
  if (isBelow(path, home) || isBelow(home, path))
    throw new CoppiceError('invalid_argument', `the workspace ${path} and the home of the daemon overlap`, {
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
export const identifyWorkspace = (path: string): string | undefined => {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat?.isDirectory() ? identityOf(stat) : undefined;
};
