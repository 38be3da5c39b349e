import { existsSync } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';

/** A directory of the host that a sandbox gets as its /workspace: it must be just what its path says. */
export async function checkWorkspace(path: string): Promise<void> {
  const stat = await lstat(path).catch((cause: unknown) => {
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
  if (existsSync(join(path, '.jvs')))
    throw new CoppiceError('invalid_argument', `${path} holds the history of a workspace`, {
      hint: `A sandbox must not be able to rewrite it. Give one of its worktrees: ${join(path, 'main')}`,
    });
}
