import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

/** Where programs keep what they watch, besides the directory that they work in. */
const usual = ['/root', '/home', '/srv', '/opt', '/app', '/workspace', '/tmp', '/var/www'];

/**
 * Where CRIU may look for the files that programs of the sandbox watch. The kernel tells of a watch which inode it is of, and on an
 * overlay that alone does not lead back to a path. Empty where nobody watches anything, which spares the search.
 */
export const watchedPlaces = (init: number, cgroupDirectory: string): string[] => {
  const pids = readFileSync(join(cgroupDirectory, 'cgroup.procs'), 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  const watchers = pids.filter(watchesFiles);
  if (watchers.length === 0) return [];
  const places = [...watchers.map((pid) => linkOf(`/proc/${pid}/cwd`) ?? '/'), ...usual];
  return [...new Set(places)].filter((place) => place !== '/' && isDirectoryOf(`/proc/${init}/root`, place));
};

/** A real directory, and no link on the way: CRIU runs on the host and would follow a link of the sandbox there. */
function isDirectoryOf(root: string, place: string): boolean {
  const parts = place.split('/').slice(1);
  return parts.every((_, index) => {
    const path = `${root}/${parts.slice(0, index + 1).join('/')}`;
    return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  });
}

function watchesFiles(pid: string): boolean {
  try {
    const directory = `/proc/${pid}/fd`;
    return readdirSync(directory).some((fd) => linkOf(join(directory, fd)) === 'anon_inode:inotify');
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

const isGone = (error: unknown): boolean =>
  ['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '');
