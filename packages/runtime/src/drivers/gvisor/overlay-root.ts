import { mkdirSync } from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../../programs/run-program.ts';

/**
 * Mounts the disk over the image where gVisor's file server reads it. `userxattr` writes the same marks into the upper
 * layer as the container driver does, so that a disk may change drivers.
 */
export const mountRoot = async (
  imageDir: string,
  shimDir: string,
  diskDir: string,
  rootDir: string,
): Promise<void> => {
  // These characters have a meaning in the options of the mount; our own paths are made without them.
  for (const path of [imageDir, shimDir, diskDir]) {
    if (/[,:\\]/.test(path)) {
      throw new CoppiceError('invalid_argument', `the path ${path} holds a comma, a colon or a backslash`, {
        hint: 'Choose a COPPICE_HOME without these characters.',
      });
    }
  }
  mkdirSync(rootDir, { recursive: true });
  const layers = `lowerdir=${imageDir}:${shimDir},upperdir=${diskDir}/upper,workdir=${diskDir}/work`;
  await runProgram(['mount', '-t', 'overlay', '-o', `userxattr,nosuid,nodev,${layers}`, 'overlay', rootDir]);
};

/** Idempotent. What still reads it keeps it until it ends. */
export const unmountRoot = async (rootDir: string): Promise<void> => {
  await runProgram(['umount', '--lazy', '--quiet', rootDir], { accept: [1, 32] });
  await rmdir(rootDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
};
