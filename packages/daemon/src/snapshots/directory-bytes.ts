import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

export interface DirectoryBytes {
  /** What its files take on the disk; holes do not count. */
  readonly storedBytes: number;
  /** How long they are. */
  readonly lengthBytes: number;
}

export async function directoryBytes(directory: string): Promise<DirectoryBytes> {
  let storedBytes = 0;
  let lengthBytes = 0;
  for (const entry of await readdir(directory, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile()) continue;
    const { blocks, size } = await stat(join(entry.parentPath, entry.name));
    storedBytes += blocks * 512;
    lengthBytes += size;
  }
  return { storedBytes, lengthBytes };
}
