import { CoppiceError, type Quota } from '@coppice/protocol';
import type { State } from '../db/state.ts';

export interface Wanted {
  readonly sandboxes: number;
  readonly memoryMb: number;
  readonly diskMb: number;
}

/** Holds what the tokens of one person made to the quota that they carry. Administrators are nobody here, and have none. */
export class Quotas {
  readonly #state: State;
  readonly #quotaOf: (owner: string) => Quota | undefined;

  constructor(state: State, quotaOf: (owner: string) => Quota | undefined) {
    this.#state = state;
    this.#quotaOf = quotaOf;
  }

  /** To be asked in the transaction that writes down what was wanted, so that two calls do not share the last place. */
  assertRoom(owner: string | null, wanted: Wanted): void {
    const quota = owner === null ? undefined : this.#quotaOf(owner);
    if (owner === null || quota === undefined) return;
    const has = this.#state.sandboxes.sumsOf(owner);
    assertBelow(quota.sandboxes, has.count, wanted.sandboxes, 'sandboxes', 'sandboxes');
    assertBelow(quota.memory_mb, has.memoryMb, wanted.memoryMb, 'MiB of memory', 'memory_mb');
    assertBelow(quota.disk_mb, has.diskMb, wanted.diskMb, 'MiB of disk', 'disk_mb');
  }

  /** Snapshots that Coppice takes for itself do not count. */
  assertSnapshot(owner: string | null): void {
    const quota = owner === null ? undefined : this.#quotaOf(owner);
    if (owner === null || quota === undefined) return;
    assertBelow(quota.snapshots, this.#state.snapshots.countOwned(owner), 1, 'snapshots', 'snapshots');
  }
}

function assertBelow(most: number | null, has: number, more: number, what: string, field: keyof Quota): void {
  if (most === null || more <= 0 || has + more <= most) return;
  throw new CoppiceError(
    'limit_reached',
    `the quota of this token is ${most} ${what}; ${has} are taken, and ${more} more are asked for`,
    {
      hint: 'Destroy or delete what is no longer needed, or ask an administrator for a token with a larger quota.',
      details: { limit: `quota.${field}`, maximum: most, taken: has },
    },
  );
}
