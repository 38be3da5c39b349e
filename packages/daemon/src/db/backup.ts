import { copyFile, rename, stat } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import type { Home } from '../config/home.ts';
import type { State } from './state.ts';

/** Only when something happened since the last one. */
export function backupOf(state: State, home: Home): () => Promise<void> {
  let savedSeq = -1;
  return async () => {
    const seq = state.events.lastSeq();
    if (seq === savedSeq) return;
    await state.backup(home.backupFile, rename);
    savedSeq = seq;
  };
}

/** What stood there is kept beside it. Says what it did. */
export async function bringBackupBack({ databaseFile, backupFile }: Home): Promise<string> {
  const { mtime } = await stat(backupFile).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
    throw new CoppiceError('not_found', `there is no backup ${backupFile}`, {
      hint: 'Start without --restore-backup. If the database is damaged, move it away: disks and snapshots are kept and set aside.',
      cause,
    });
  });
  for (const suffix of ['', '-wal', '-shm'])
    await rename(`${databaseFile}${suffix}`, `${databaseFile}.damaged${suffix}`).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
      },
    );
  await copyFile(backupFile, databaseFile);
  return `The database is the backup of ${mtime.toISOString()} now; the one before it is ${databaseFile}.damaged.`;
}
