import { CoppiceError } from '@coppice/protocol';

const maxNameBytes = 255;
const maxPathBytes = 3000;

/** The components of an entry's path below the root; none for the root itself. */
export function parseEntryPath(path: string): string[] {
  if (path.startsWith('/')) throw unsafe(path, 'its path is absolute');
  if (path.includes('\0')) throw unsafe(path, 'its path has a NUL byte');
  // The reader puts this character where bytes are not UTF-8; the name would not be the one that was packed.
  if (path.includes('\uFFFD')) {
    throw new CoppiceError('unsupported', `the entry ${quote(path)} has a name that is not UTF-8`, {
      hint: 'Nothing was written. Rename the file and pack it again.',
    });
  }
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) throw unsafe(path, 'its path has a `..`');
  if (
    Buffer.byteLength(path) > maxPathBytes ||
    parts.some((part) => Buffer.byteLength(part) > maxNameBytes)
  ) {
    throw new CoppiceError('invalid_argument', `the entry ${quote(path)} has a path that is too long`);
  }
  return parts;
}

/**
 * A symlink may point anywhere below the root. An absolute target resolves inside the sandbox; one that climbs above
 * the root by its own text has no meaning there and is an attack on whoever reads the image from outside.
 */
export function checkSymlinkTarget(path: string, parts: readonly string[], target: string): void {
  if (target === '' || target.includes('\0')) throw unsafe(path, 'it is a symlink without a usable target');
  if (target.startsWith('/')) return;
  let depth = parts.length - 1;
  for (const part of target.split('/')) {
    if (part === '' || part === '.') continue;
    depth += part === '..' ? -1 : 1;
    if (depth < 0) throw unsafe(path, `it is a symlink that leaves the root: ${quote(target)}`);
  }
}

export const unsafe = (path: string, reason: string): CoppiceError =>
  new CoppiceError('unsafe', `the entry ${quote(path)} is refused: ${reason}`, { details: { path, reason } });

const quote = (path: string): string => JSON.stringify(path.length > 200 ? `${path.slice(0, 200)}…` : path);
