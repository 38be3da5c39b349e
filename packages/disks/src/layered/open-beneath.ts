import { constants, type FileHandle, open } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import { bytesOfText } from './path-text.ts';

const inside = (directory: FileHandle, name: string): Buffer =>
  Buffer.concat([Buffer.from(`/proc/self/fd/${directory.fd}/`), bytesOfText(name)]);

const refuse = (path: string, error: unknown): unknown => {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return new CoppiceError('not_found', `/${path} does not exist.`, { cause: error });
  if (code !== 'ELOOP' && code !== 'ENOTDIR') return error;
  return new CoppiceError('unsafe', `/${path} leads through a symbolic link or a file.`, { cause: error });
};

/**
 * Runs the work with a name of the directory that cannot be led astray: each component is opened from the one before
 * without following links, so whoever controls the tree cannot point it elsewhere, not even meanwhile.
 */
export const withDirectory = async <T>(
  rootDir: string,
  path: string,
  work: (entryPath: (name: string) => Buffer, directory: FileHandle) => Promise<T>,
): Promise<T> => {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  let directory = await open(rootDir, flags);
  try {
    for (const name of path.split('/').filter((part) => part !== '')) {
      if (name === '..' || name === '.') {
        throw new CoppiceError('invalid_argument', `/${path} is not a plain path.`);
      }
      const next = await open(inside(directory, name) as unknown as string, flags).catch((error: unknown) => {
        throw refuse(path, error);
      });
      await directory.close();
      directory = next;
    }
    const held = directory;
    return await work((name) => inside(held, name), held);
  } finally {
    await directory.close();
  }
};

export const splitPath = (path: string): { parent: string; name: string } => {
  const slash = path.lastIndexOf('/');
  return { parent: slash < 0 ? '' : path.slice(0, slash), name: path.slice(slash + 1) };
};

/** Opens a regular file of a layer for reading; the caller closes it. */
export const openFileBeneath = async (rootDir: string, path: string): Promise<FileHandle> => {
  const { parent, name } = splitPath(path);
  return withDirectory(rootDir, parent, async (entryPath) => {
    // Not blocking, should it have become a FIFO.
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
    const file = await open(entryPath(name) as unknown as string, flags).catch((error: unknown) => {
      throw refuse(path, error);
    });
    if ((await file.stat()).isFile()) return file;
    await file.close();
    throw new CoppiceError('invalid_argument', `/${path} is not a regular file.`);
  });
};
