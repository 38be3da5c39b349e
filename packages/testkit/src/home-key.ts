import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';

/** What the daemon puts into the name of every cgroup, link, table and namespace of a home, by the real path of its directory. */
export const homeKeyOfPath = (path: string): string =>
  createHash('sha256').update(path).digest('hex').slice(0, 8);

/** The key of a home whose directory is there. */
export const homeKey = (directory: string): string => homeKeyOfPath(realpathSync(directory));
