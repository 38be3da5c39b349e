import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';

const withoutEscapes = (path: string): string =>
  path.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** Before a directory is removed: what is mounted in it is somebody else's, and would be emptied. */
export const refuseMounts = (directory: string): void => {
  const mounted = readFileSync('/proc/self/mountinfo', 'latin1')
    .split('\n')
    .map((line) => withoutEscapes(line.split(' ')[4] ?? ''))
    .find((path) => path === directory || path.startsWith(`${directory}/`));
  if (mounted === undefined) return;
  throw new CoppiceError('in_use', `${mounted} is mounted below ${directory}: nothing was removed`, {
    hint: `Unmount it first: umount ${mounted}`,
  });
};
