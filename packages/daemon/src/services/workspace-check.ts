import { lstat, realpath } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';

/** A directory of the host that a sandbox gets as its /workspace: it must be just what its path says. */
export async function checkWorkspace(path: string): Promise<void> {
  const stat = await lstat(path).catch((cause: unknown) => {
    throw new CoppiceError('not_found', `the workspace ${path} does not exist`, { cause });
  });
  if (!stat.isDirectory())
    throw new CoppiceError('invalid_argument', `the workspace ${path} is not a directory`);
  const real = await realpath(path);
  if (real !== path)
    throw new CoppiceError('invalid_argument', `the workspace ${path} leads through a symbolic link`, {
      hint: `Give the path itself: ${real}`,
    });
}
