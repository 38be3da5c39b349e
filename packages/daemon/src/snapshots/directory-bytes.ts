import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** What its files take on the disk; holes do not count. */
export async function directoryBytes(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { withFileTypes: true, recursive: true }))
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name))).blocks * 512;
  return bytes;
}
