import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

export interface ListedEntry {
  readonly path: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly mtimeMs: number;
}

/** Everything below a directory, sorted by path: equal lists mean that nothing was written between them. */
export function listTree(root: string): ListedEntry[] {
  const paths = readdirSync(root, { recursive: true, encoding: 'utf8' }).sort();
  return paths.map((path) => {
    const { mode, uid, gid, size, mtimeMs } = lstatSync(join(root, path));
    return { path, mode, uid, gid, sizeBytes: size, mtimeMs };
  });
}
