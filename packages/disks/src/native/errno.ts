import { CoppiceError, type ErrorCode } from '@coppice/protocol';

interface Meaning {
  readonly code: ErrorCode;
  readonly text: string;
}

const meanings: Readonly<Record<string, Meaning>> = {
  ENOENT: { code: 'not_found', text: 'it does not exist' },
  ENOTDIR: { code: 'not_found', text: 'a part of the path is not a directory' },
  ELOOP: { code: 'unsafe', text: 'a symbolic link is on the way' },
  EXDEV: { code: 'unsafe', text: 'the path leaves its root' },
  EEXIST: { code: 'name_taken', text: 'it exists already' },
  EBUSY: { code: 'in_use', text: 'it is in use' },
  ENOSPC: { code: 'no_space', text: 'no space is left' },
  EROFS: { code: 'unavailable', text: 'the pool is read-only' },
  EDQUOT: { code: 'no_space', text: 'the disk quota is used up' },
  EOPNOTSUPP: { code: 'unsupported', text: 'the filesystem cannot do this' },
  ENODEV: { code: 'unsupported', text: 'the kernel does not have this filesystem' },
  ENOSYS: { code: 'unsupported', text: 'the kernel or the helper program does not know this call' },
  EPERM: { code: 'forbidden', text: 'the operation is not permitted' },
  EACCES: { code: 'forbidden', text: 'permission is denied' },
  EINVAL: { code: 'invalid_argument', text: 'the argument is not valid' },
  ENAMETOOLONG: { code: 'invalid_argument', text: 'the name is too long' },
  EIO: { code: 'corrupt', text: 'the disk gave an error' },
  EUCLEAN: { code: 'corrupt', text: 'the filesystem is damaged' },
};

const readOnlyHint = 'Run `coppice up`: it mounts the pool again and says which sandboxes it had to end.';

/** An error of the kernel, said in our words; `details.errno` keeps its name for callers that must tell cases apart. */
export const errorOfErrno = (errno: string, doing: string): CoppiceError => {
  const meaning = meanings[errno] ?? { code: 'internal' as const, text: 'the kernel refused' };
  return new CoppiceError(meaning.code, `Could not ${doing}: ${meaning.text} (${errno}).`, {
    details: { errno },
    ...(errno === 'EROFS' ? { hint: readOnlyHint } : {}),
  });
};

export const hasErrno = (error: unknown, ...errnos: string[]): boolean =>
  error instanceof CoppiceError && errnos.includes(String(error.details?.errno));
