import { closeSync, constants, copyFileSync, linkSync, openSync, readSync, rmSync, writeSync } from 'node:fs';

const basisAt = 104;
const basisBytes = 32;

/** The snapshot whose life keeps the places named in an index alive (guest/tree/index.h). */
export const readIndexBasis = (path: string): string | undefined => {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const bytes = Buffer.alloc(basisBytes);
    if (readSync(file, bytes, 0, basisBytes, basisAt) !== basisBytes) return undefined;
    const end = bytes.indexOf(0);
    return bytes.toString('latin1', 0, end < 0 ? basisBytes : end);
  } finally {
    closeSync(file);
  }
};

/** For an index that still holds after another snapshot of the same tree. */
export const writeIndexBasis = (path: string, basis: string): void => {
  const file = openSync(path, 'r+');
  try {
    const bytes = Buffer.alloc(basisBytes);
    bytes.write(basis, 'latin1');
    writeSync(file, bytes, 0, basisBytes, basisAt);
  } finally {
    closeSync(file);
  }
};

/** Shares the bytes where the filesystem can. */
export const copyIndex = (from: string, to: string): void => {
  rmSync(to, { force: true });
  copyFileSync(from, to, constants.COPYFILE_FICLONE);
};

/**
 * A second name for an index, which is only ever replaced; but for its basis, which then is a snapshot of the same tree and keeps the
 * same places alive. A copy would have to be written to the disk before it can share anything.
 */
export const shareIndex = (from: string, to: string): void => {
  rmSync(to, { force: true });
  try {
    linkSync(from, to);
  } catch {
    // Too many names, or a filesystem that knows only one.
    copyIndex(from, to);
  }
};
