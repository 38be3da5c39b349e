import { type Cidr, formatAddress, overlaps, parseCidr } from './cidr.ts';

/** Names and numbers of one home's network. Each holds the home's key, so that homes do not meet. */
export class AddressPlan {
  readonly range: Cidr;
  readonly #homeKey: string;

  constructor(homeKey: string, range: Cidr) {
    this.#homeKey = homeKey;
    this.range = range;
  }

  /** Held by the host's end of every link, and by nothing else. */
  get gateway(): string {
    return formatAddress(this.range.base + 1);
  }

  /**
   * Addresses that stand for names. They are of a block that no network uses (RFC 2544), each home having a part of its own, as it
   * has a range of its own.
   */
  get names(): Cidr {
    const index = (this.range.base - firstRange.base) / 0x1_0000;
    return { base: firstName.base + index * 0x800, bits: 21 };
  }

  address(slot: number): string {
    return formatAddress(this.range.base + slot);
  }

  /** The host's end of a link; the kernel allows fifteen characters. */
  linkName(slot: number): string {
    return `${linkPrefix(this.#homeKey)}${slot.toString(16).padStart(4, '0')}`;
  }
}

export const linkPrefix = (homeKey: string): string => `cp${homeKey}`;
export const tableName = (homeKey: string): string => `coppice_${homeKey}`;
export const namespacePrefix = (homeKey: string): string => `coppice-${homeKey}-`;

/** Slots whose address ends in 0 or 255 stay unused: old programs take those for broadcasts. */
export const isUsableSlot = (slot: number): boolean =>
  slot >= 2 && slot < 0xffff && slot % 256 !== 0 && slot % 256 !== 255;

const firstRange = parseCidr('10.192.0.0/16');
const firstName = parseCidr('198.18.0.0/21');
const rangeCount = 64;

/** The ranges that a home may take, in its own order, so that homes on one machine rarely want the same. */
export function candidateRanges(homeKey: string): Cidr[] {
  const start = Number.parseInt(homeKey, 16) % rangeCount;
  return Array.from({ length: rangeCount }, (_, i) => ({
    base: firstRange.base + ((start + i) % rangeCount) * 0x1_0000,
    bits: 16,
  }));
}

export const freeRange = (homeKey: string, taken: readonly Cidr[]): Cidr | undefined =>
  candidateRanges(homeKey).find((range) => !taken.some((other) => overlaps(range, other)));
