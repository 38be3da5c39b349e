import { lstatSync, readdirSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { WorkspaceLayout } from './layout.ts';

/** For what is put into a directory of its own. */
export const refuseTakenDirectory = ({ control }: WorkspaceLayout, directory: string): void => {
  if (directory === control || directory.startsWith(`${control}/`)) {
    throw new CoppiceError('invalid_argument', `${directory} is inside the store of the workspace`, {
      hint: 'Name a directory outside of .jvs.',
    });
  }
  const found = lstatSync(directory, { throwIfNoEntry: false });
  if (!found || (found.isDirectory() && readdirSync(directory).length === 0)) return;
  throw new CoppiceError('name_taken', `${directory} exists already and is not an empty directory`, {
    hint: 'Name a directory that does not exist yet.',
  });
};
