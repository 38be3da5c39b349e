import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { mountPlaces } from '../../machine/mount-places.ts';

/**
 * The lowest layer of every root: the places that are mounted over. Where an image lacks one, gVisor's file server would
 * make it, on the sandbox's own disk.
 */
export const makeShimLayer = (directory: string): string => {
  for (const name of mountPlaces) mkdirSync(join(directory, name), { recursive: true });
  mkdirSync(join(directory, 'dev', 'shm'), { recursive: true });
  writeFileSync(join(directory, 'run', 'coppice-agent'), '', { mode: 0o755 });
  return directory;
};
