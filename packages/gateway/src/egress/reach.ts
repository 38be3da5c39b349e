import { Resolver, lookup as systemLookup } from 'node:dns/promises';
import { BlockList, connect, isIPv4, isIPv6, type OnReadOpts, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { EgressPolicy } from './policies.ts';

export interface Address {
  readonly address: string;
  readonly family: 4 | 6;
}

export type Lookup = (name: string) => Promise<readonly Address[]>;

/** The name exists but may not be reached, in words for whoever owns the sandbox. */
export class Unreachable extends Error {}

const blockList = (blocks: readonly (readonly [string, number, 'ipv4' | 'ipv6'])[]): BlockList => {
  const list = new BlockList();
  for (const [address, bits, family] of blocks) list.addSubnet(address, bits, family);
  return list;
};

/** Never reached by a name: this machine, its links, and what is sent to many. */
const never = blockList([
  ['0.0.0.0', 8, 'ipv4'],
  ['127.0.0.0', 8, 'ipv4'],
  ['169.254.0.0', 16, 'ipv4'],
  ['224.0.0.0', 3, 'ipv4'],
  ['::', 96, 'ipv6'],
  ['fe80::', 10, 'ipv6'],
  ['ff00::', 8, 'ipv6'],
]);

/** Reached by a name only where the policy allows the address too. */
const inner = blockList([
  ['10.0.0.0', 8, 'ipv4'],
  ['100.64.0.0', 10, 'ipv4'],
  ['172.16.0.0', 12, 'ipv4'],
  ['192.168.0.0', 16, 'ipv4'],
  ['198.18.0.0', 15, 'ipv4'],
  ['fc00::', 7, 'ipv6'],
  // Blocks that wrap an IPv4 address, which would have to be judged again.
  ['64:ff9b::', 96, 'ipv6'],
  ['64:ff9b:1::', 48, 'ipv6'],
  ['2002::', 16, 'ipv6'],
]);

const ownAddressesMs = 2_000;
const connectMs = 15_000;

/** Turns names into connections, and refuses those that lead where no name may lead. */
export class Reach {
  readonly #lookup: Lookup;
  #own = new Set<string>();
  #ownReadAt = Number.NEGATIVE_INFINITY;

  constructor(lookup: Lookup) {
    this.#lookup = lookup;
  }

  /** Whether a name exists. Throws where it cannot be told. */
  async exists(name: string): Promise<boolean> {
    return (await this.#lookup(name)).length > 0;
  }

  /** With `reading` the connection is paused, and what it reads goes there. */
  async connect(policy: EgressPolicy, name: string, port: number, reading?: OnReadOpts): Promise<Socket> {
    const addresses = await this.#lookup(name);
    if (addresses.length === 0) throw new Unreachable(`${name} does not exist`);
    const open = addresses.filter((address) => this.#isOpen(policy, address));
    if (open.length === 0) throw new Unreachable(refusal(name, addresses[0]));
    return connected(name, port, open, reading);
  }

  #isOpen(policy: EgressPolicy, { address }: Address): boolean {
    const plain = plainAddress(address);
    if (plain === undefined) return false;
    const kind = isIPv4(plain) ? 'ipv4' : 'ipv6';
    if (never.check(plain, kind) || this.#ownAddresses().has(plain)) return false;
    if (!inner.check(plain, kind)) return true;
    return kind === 'ipv4' && policy.reachable.check(plain, 'ipv4');
  }

  #ownAddresses(): ReadonlySet<string> {
    if (performance.now() - this.#ownReadAt > ownAddressesMs) {
      const links = Object.values(networkInterfaces());
      this.#own = new Set(
        links.flatMap((link) => link?.map(({ address }) => plainAddress(address) ?? address) ?? []),
      );
      this.#ownReadAt = performance.now();
    }
    return this.#own;
  }
}

/** In the one form that all are compared in; IPv4 that is written as IPv6 is IPv4. Undefined where it is no address. */
const plainAddress = (address: string): string | undefined => {
  if (isIPv4(address)) return address;
  if (!isIPv6(address) || address.includes('%')) return undefined;
  const plain = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const [, high, low] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(plain) ?? [];
  if (high === undefined || low === undefined) return plain;
  const words = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return words.flatMap((word) => [word >> 8, word & 0xff]).join('.');
};

const refusal = (name: string, first: Address | undefined): string =>
  `${name} leads to ${first?.address}, which is this machine or a private network; ` +
  'a private address is reached by name only where the policy allows the address too';

function connected(
  name: string,
  port: number,
  addresses: readonly Address[],
  onread: OnReadOpts | undefined,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      ...(onread === undefined ? {} : { onread }),
      host: name,
      port,
      allowHalfOpen: true,
      noDelay: true,
      autoSelectFamily: true,
      lookup: (_name, _options, done) => done(null, [...addresses]),
    });
    if (onread !== undefined) socket.pause();
    const timer = setTimeout(
      () => socket.destroy(new Unreachable(`${name} did not answer at port ${port}`)),
      connectMs,
    );
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.removeListener('error', reject);
      resolve(socket);
    });
    socket.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
  });
}

const isAbsent = (error: unknown): boolean =>
  ['ENOTFOUND', 'ENODATA', 'NXDOMAIN'].includes((error as NodeJS.ErrnoException).code ?? '');

const absentIsNone = async (asking: Promise<readonly Address[]>): Promise<readonly Address[]> => {
  try {
    return await asking;
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
};

/** The machine's own resolver, with its hosts file; or the servers that are configured. */
export function lookupBy(servers: readonly string[]): Lookup {
  if (servers.length === 0)
    return (name) =>
      absentIsNone(systemLookup(name, { all: true }) as unknown as Promise<readonly Address[]>);
  const resolver = new Resolver({ timeout: 3_000, tries: 2 });
  resolver.setServers(servers);
  const of = async (name: string, family: 4 | 6): Promise<readonly Address[]> =>
    (await (family === 4 ? resolver.resolve4(name) : resolver.resolve6(name))).map((address) => ({
      address,
      family,
    }));
  return async (name) => [...(await absentIsNone(of(name, 4))), ...(await absentIsNone(of(name, 6)))];
}
