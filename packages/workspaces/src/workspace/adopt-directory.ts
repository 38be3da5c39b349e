import { existsSync, lstatSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { TreeProgram } from '../trees/tree-program.ts';
import { type CreateWorkspaceOptions, createWorkspace } from './create-workspace.ts';
import { destroyWorkspace } from './destroy-workspace.ts';
import { WorkspaceLayout } from './layout.ts';
import { checkName } from './names.ts';
import { type RepositoryRecord, readRepository } from './repository-record.ts';

const subvolumeInode = 256;

const refuse = (root: string): void => {
  const found = lstatSync(root, { throwIfNoEntry: false });
  if (!found?.isDirectory()) {
    throw new CoppiceError('not_found', `there is no directory ${root}`, {
      hint: 'Leave out --adopt to make a new workspace.',
    });
  }
  if (existsSync(join(root, '.jvs'))) {
    throw new CoppiceError('name_taken', `${root} is a workspace already, or was one`, {
      hint: 'Go into it with cd and use `jvs status`.',
    });
  }
};

/** The name under which it is put together. */
const asideOf = (root: string): string => `${root}.jvs-init`;

/** Goes on where an earlier one was cut off. True: there is nothing left to do. */
const settleInterrupted = async (root: string): Promise<boolean> => {
  const aside = asideOf(root);
  if (!existsSync(aside)) return false;
  if (!existsSync(root)) {
    renameSync(aside, root);
    return true;
  }
  if (existsSync(join(aside, 'main')) && readdirSync(join(aside, 'main')).length > 0) {
    throw new CoppiceError('name_taken', `${aside} is in the way`, { hint: 'Move it elsewhere.' });
  }
  await destroyWorkspace(aside);
  return false;
};

/**
 * Makes a directory with files in it a workspace: all of it becomes its first worktree, NAME/main. Nothing is copied: the directory itself is
 * renamed, and whoever stands in it then stands in the worktree.
 */
export const adoptDirectory = async (
  options: CreateWorkspaceOptions,
): Promise<RepositoryRecord & { root: string }> => {
  const name = checkName('workspace', options.name);
  const root = join(options.parent, name);
  const aside = asideOf(root);
  if (await settleInterrupted(root)) {
    options.notice('an interrupted init was finished');
    return { ...readRepository(new WorkspaceLayout(root)), root };
  }
  refuse(root);
  const plainDirectory = lstatSync(root).ino !== subvolumeInode;
  const made = await createWorkspace({ ...options, name: `${name}.jvs-init`, plainDirectory });
  const program = new TreeProgram();
  try {
    await program.request('remove', { path: join(aside, 'main') });
    renameSync(root, join(aside, 'main'));
    renameSync(aside, root);
  } catch (error) {
    if (!existsSync(root) && existsSync(join(aside, 'main'))) renameSync(join(aside, 'main'), root);
    await destroyWorkspace(made.root);
    throw error;
  } finally {
    program.close();
  }
  return { ...made, root };
};
