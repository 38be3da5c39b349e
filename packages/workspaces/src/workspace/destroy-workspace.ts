import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { TreeProgram } from '../trees/tree-program.ts';
import { findWorkspace } from './layout.ts';
import { refuseLinks } from './refuse-links.ts';
import { refuseMounts } from './refuse-mounts.ts';

export interface Destruction {
  readonly root: string;
  /** What was beside the workspace in its directory, and stays. */
  readonly left: readonly string[];
}

/**
 * Removes a workspace with all its worktrees and snapshots, damaged or not. What makes it a workspace goes last, so that one
 * that was cut off can be destroyed again.
 */
export const destroyWorkspace = async (directory: string): Promise<Destruction> => {
  const { layout } = findWorkspace(directory);
  const { root, control } = layout;
  if (root !== directory) {
    throw new CoppiceError('invalid_argument', `${directory} is inside the workspace ${root}`, {
      hint: `Name the workspace itself: jvs destroy ${root}`,
    });
  }
  refuseLinks(layout);
  refuseMounts(root);
  const program = new TreeProgram();
  try {
    if (existsSync(join(control, 'locks'))) {
      const path = layout.lock('store');
      const { locked } = await program.request<{ locked: boolean }>('lock', {
        path,
        shared: false,
        waitMs: 500,
      });
      if (!locked) {
        throw new CoppiceError(
          'in_use',
          `another command works on the workspace ${root}: nothing was removed`,
          {
            hint: 'Run it again when that command has ended.',
          },
        );
      }
    }
    const remove = (path: string) => program.request('remove', { path });
    const forks = join(root, 'worktrees');
    for (const name of existsSync(forks) ? readdirSync(forks) : []) {
      await remove(layout.payload(name));
      await remove(layout.worktreeFolder(name));
    }
    await remove(forks);
    await remove(layout.payload('main'));
    for (const name of existsSync(layout.trees) ? readdirSync(layout.trees) : [])
      await remove(join(layout.trees, name));
    for (const name of readdirSync(control))
      if (name !== 'repository.json') await remove(join(control, name));
    await remove(control);
  } finally {
    program.close();
  }
  const left = readdirSync(root);
  if (left.length === 0) rmdirSync(root);
  return { root, left };
};
