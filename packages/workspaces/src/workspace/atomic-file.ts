import { chownSync, closeSync, fsyncSync, openSync, renameSync, statSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/** What root makes in somebody's workspace belongs to them: to the owner of the directory that it is in. */
export const giveToOwner = (path: string): void => {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(path));
  if (uid !== 0) chownSync(path, uid, gid);
};

/** The old content or the new one, whatever happens. */
export const writeFileAtomically = (path: string, text: string): void => {
  const temporary = `${path}.${process.pid}.new`;
  const file = openSync(temporary, 'w', 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  giveToOwner(temporary);
  renameSync(temporary, path);
};
