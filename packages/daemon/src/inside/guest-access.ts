import type { Guest } from '@coppice/runtime';
import type { LimitWatch } from './limit-watch.ts';

/** A sandbox in use: as long as a lease is held it is not idle. */
export interface GuestLease {
  readonly sandboxId: string;
  readonly name: string;
  /** What every process of the sandbox gets, unless it is asked for otherwise. */
  readonly env: Readonly<Record<string, string>>;
  readonly user?: string | undefined;
  readonly cwd?: string | undefined;
  readonly guest: Guest;
  /** Begins to watch what the sandbox runs out of. */
  watchLimits(): LimitWatch;
  /** Marks activity: a long call that is silent is idle again. */
  touch(): void;
  release(): void;
}

/** The way to the inside of a sandbox for every service that runs something there. */
export interface GuestAccess {
  /** By id or name. Wakes a paused sandbox first; refuses a stopped or failed one with wrong_state and how to start it. */
  acquire(ref: string): Promise<GuestLease>;
}

/** Holds a lease for as long as the work takes. */
export const withGuest = async <T>(
  guests: GuestAccess,
  ref: string,
  work: (lease: GuestLease) => Promise<T>,
): Promise<T> => {
  const lease = await guests.acquire(ref);
  try {
    return await work(lease);
  } finally {
    lease.release();
  }
};
