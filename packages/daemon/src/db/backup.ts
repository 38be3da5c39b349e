import { copyFile, rename, rm } from 'node:fs/promises';
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

export async function bringBackupBack(home: Home): Promise<void> {
  const damaged = `${home.databaseFile}.damaged`;
  await rename(home.databaseFile, damaged).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  for (const suffix of ['-wal', '-shm']) await rm(`${home.databaseFile}${suffix}`, { force: true });
  await copyFile(home.backupFile, home.databaseFile);
}
