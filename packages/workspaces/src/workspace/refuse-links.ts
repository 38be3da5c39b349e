import { lstatSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { WorkspaceLayout } from './layout.ts';

const isLink = (path: string): boolean =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;

const forksIn = (folder: string): string[] => {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return [];
    throw error;
  }
};

/**
 * Refuses a workspace that has a symbolic link where jvs makes a directory or a file of its own. A workspace can come from a stranger,
 * and jvs would write to, and remove, what the link leads to.
 */
export const refuseLinks = (layout: WorkspaceLayout): void => {
  const { root, control, folders, repositoryFile, settingsFile, logFile } = layout;
  const forks = join(root, 'worktrees');
  const refuse = (path: string): void => {
    if (!isLink(path)) return;
    throw new CoppiceError('corrupt', `${path} is a symbolic link to ${readlinkSync(path)}`, {
      hint: 'A workspace has no link there. Nothing was changed. Remove the link, then run `jvs doctor --repair`.',
    });
  };
  for (const path of [
    control,
    ...folders,
    repositoryFile,
    settingsFile,
    logFile,
    layout.payload('main'),
    forks,
  ])
    refuse(path);
  for (const name of forksIn(forks)) {
    refuse(layout.worktreeFolder(name));
    refuse(layout.payload(name));
  }
};
