import { lstatSync, realpathSync } from 'node:fs';
import { basename, dirname, join, normalize, relative, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { pathBytes, pathText } from '../trees/path-text.ts';

/** The worktree may be reached through symbolic links; what is named itself may be one, and is not followed. */
const withoutLinks = (path: string): string => {
  const parent = dirname(path);
  if (parent === path) return path;
  const bytes = pathBytes(path);
  const found = lstatSync(bytes, { throwIfNoEntry: false });
  return found && !found.isSymbolicLink()
    ? pathText(realpathSync.native(bytes, 'buffer'))
    : join(withoutLinks(parent), basename(path));
};

/** Paths as the tree knows them, from those that were given in the directory `from`. All lie inside the worktree; none: all of it. */
export const insidePaths = (
  payload: string,
  from: string,
  paths: readonly string[],
  mustExist: boolean,
): string[] => {
  const found = paths.map((path) => {
    const inside = normalize(relative(payload, withoutLinks(resolve(from, path)))).replace(/\/+$/, '');
    if (inside === '..' || inside.startsWith('../')) {
      throw new CoppiceError('invalid_argument', `${path} is outside the worktree`, {
        hint: 'Name paths inside the worktree.',
      });
    }
    if (mustExist && !lstatSync(pathBytes(join(payload, inside)), { throwIfNoEntry: false })) {
      throw new CoppiceError('not_found', `there is no ${path} in the worktree`);
    }
    return inside === '.' ? '' : inside;
  });
  return found.includes('') ? [] : [...new Set(found)].sort();
};
