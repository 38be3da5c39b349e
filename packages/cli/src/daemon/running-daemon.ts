import { type DaemonRecord, readDaemonRecord } from '@coppice/sdk';
import type { Health } from './health.ts';
import { askHealth } from './health.ts';

export interface RunningDaemon extends DaemonRecord {
  readonly health: Health;
}

/** The daemon of a home, if one runs and answers. A record that a killed daemon left behind is none. */
export const findRunningDaemon = async (home: string): Promise<RunningDaemon | undefined> => {
  const record = readDaemonRecord(home);
  if (record === undefined || !isAlive(record.pid)) return undefined;
  const health = await askHealth(home);
  return health === undefined ? undefined : { ...record, health };
};

export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
};
