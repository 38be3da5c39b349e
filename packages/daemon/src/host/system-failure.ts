import { CoppiceError } from '@coppice/protocol';
import Database from 'better-sqlite3';

/**
 * What the machine refuses, under a file of the home or under the database, as one of our errors; undefined for anything
 * else.
 */
export function systemFailure(error: unknown): CoppiceError | undefined {
  const code = codeOf(error);
  if (code === undefined) return undefined;
  const { message } = error as Error;
  if (/^(ENOSPC|EDQUOT|SQLITE_FULL|SQLITE_IOERR_SHM(SIZE|OPEN))$/.test(code))
    return new CoppiceError('no_space', `the disk of the home is full: ${message}`, {
      hint: 'Free space on that disk, or delete snapshots and sandboxes; then try again. What runs goes on.',
      cause: error,
    });
  if (/^(EROFS|SQLITE_(READONLY|CANTOPEN|PERM))/.test(code))
    return new CoppiceError('wrong_state', `the home cannot be written: ${message}`, {
      hint: 'Look whether its disk is mounted read-only (`findmnt -T DIR`) or a file is immutable (`lsattr`), mend that, then run `coppice up`.',
      cause: error,
    });
  if (/^(EIO|SQLITE_IOERR)/.test(code))
    return new CoppiceError('corrupt', `the disk of the home gave an error: ${message}`, {
      hint: 'Look at the kernel log (`dmesg`). What was written before is in the last backup and in exported snapshots.',
      cause: error,
    });
  return undefined;
}

function codeOf(error: unknown): string | undefined {
  if (error instanceof Database.SqliteError) return error.code;
  if (!(error instanceof Error) || !('syscall' in error)) return undefined;
  return (error as NodeJS.ErrnoException).code;
}
