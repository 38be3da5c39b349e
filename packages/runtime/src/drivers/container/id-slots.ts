import { CoppiceError } from '@coppice/protocol';

/** Ids that neither people, nor subordinate ranges, nor systemd's dynamic users are given: 20,480 ranges of 65,536. */
const firstId = 0x20000000;
const slotCount = 20_480;

const idsPerSlot = 65_536;

/** Hands out ranges of user and group ids, so that no two sandboxes of a home are the same user on the host. */
export class IdSlots {
  readonly #used = new Set<number>();
  readonly #start: number;

  /** Homes start at places of their own, so that those of different homes seldom meet either. */
  constructor(homeKey: string) {
    this.#start = Number.parseInt(homeKey, 16) % slotCount;
  }

  take(): number {
    for (let step = 0; step < slotCount; step++) {
      const slot = (this.#start + step) % slotCount;
      if (this.#used.has(slot)) continue;
      this.#used.add(slot);
      return slot;
    }
    throw new CoppiceError('limit_reached', `all ${slotCount} id ranges for sandboxes are in use`);
  }

  /** For a sandbox that has it already. */
  keep(slot: number): void {
    this.#used.add(slot);
  }

  release(slot: number): void {
    this.#used.delete(slot);
  }
}

export const firstIdOf = (slot: number): number => firstId + slot * idsPerSlot;
