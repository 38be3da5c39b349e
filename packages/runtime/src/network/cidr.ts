import { isIPv4 } from 'node:net';
import { CoppiceError } from '@coppice/protocol';

/** A block of IPv4 addresses: its first address as a number, and how many bits of it count. */
export interface Cidr {
  readonly base: number;
  readonly bits: number;
}

export function parseCidr(text: string): Cidr {
  const [address = '', bitsText, ...rest] = text.split('/');
  const bits = bitsText === undefined ? 32 : /^\d{1,2}$/.test(bitsText) ? Number(bitsText) : Number.NaN;
  if (!isIPv4(address) || !(bits <= 32) || rest.length > 0) {
    throw new CoppiceError(
      'invalid_argument',
      `${JSON.stringify(text.slice(0, 60))} is not an address or a block of IPv4`,
      {
        hint: 'Write it like 198.51.100.7 or 198.51.100.0/24. Sandboxes have no IPv6.',
      },
    );
  }
  const number = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  const size = 2 ** (32 - bits);
  return { base: Math.floor(number / size) * size, bits };
}

export const formatAddress = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');

export const formatCidr = ({ base, bits }: Cidr): string => `${formatAddress(base)}/${bits}`;

export function overlaps(a: Cidr, b: Cidr): boolean {
  const size = 2 ** (32 - Math.min(a.bits, b.bits));
  return Math.floor(a.base / size) === Math.floor(b.base / size);
}
