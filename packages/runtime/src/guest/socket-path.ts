import { closeSync, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';

/** The kernel's limit on the path of a socket, with its terminator. */
const socketPathMaxBytes = 108;

/** Gives `work` a path of the socket that the kernel takes. A longer one is reached through an open descriptor of its directory. */
export async function atSocket<T>(path: string, work: (path: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(path) < socketPathMaxBytes) return work(path);
  const directory = openSync(dirname(path), 'r');
  try {
    return await work(`/proc/self/fd/${directory}/${basename(path)}`);
  } finally {
    closeSync(directory);
  }
}
