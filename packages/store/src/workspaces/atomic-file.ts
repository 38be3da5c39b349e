import { closeSync, fsyncSync, openSync, renameSync, writeSync } from 'node:fs';

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
  renameSync(temporary, path);
};
