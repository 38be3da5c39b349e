import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { DockerIgnore } from './docker-ignore.ts';
import { packDirectory } from './pack-directory.ts';

/** A directory to build from, as a tar, without what its .dockerignore names. */
export async function packContext(directory: string, ignoreFile?: string): Promise<Readable> {
  const files = [...(ignoreFile === undefined ? [] : [ignoreFile]), join(directory, '.dockerignore')];
  for (const file of files) {
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (text === undefined) continue;
    const ignore = new DockerIgnore(text);
    return packDirectory(directory, undefined, {
      takes: (path) => !ignore.leavesOut(path),
      enters: (path) => ignore.mayTakeBelow(path),
    });
  }
  return packDirectory(directory);
}
