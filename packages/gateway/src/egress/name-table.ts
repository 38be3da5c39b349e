import { SocketAddress } from 'node:net';
import type { GatewayState } from '../state.ts';

/** The block of addresses that stand for names, and what is in it. Nothing outside of this machine has them. */
export class NameBlock {
  readonly base: number;
  readonly size: number;

  constructor(cidr: string) {
    const [address = '', bits = ''] = cidr.split('/');
    this.base = numberOf(address);
    this.size = 2 ** (32 - Number(bits));
  }

  address(slot: number): string {
    const number = this.base + slot;
    return [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.');
  }

  slot(address: string | undefined): number | undefined {
    const plain = address?.replace(/^::ffff:/, '');
    if (plain === undefined || SocketAddress.parse(plain)?.family !== 'ipv4') return undefined;
    const slot = numberOf(plain) - this.base;
    return slot >= 0 && slot < this.size ? slot : undefined;
  }
}

const numberOf = (address: string): number =>
  address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

/** The gateway itself, for every sandbox. */
export const ownSlot = 1;
const firstSlot = 2;

/**
 * Which address stands for which name, for each sandbox apart. So an address is a name: a connection to it can mean no other, and
 * what one sandbox looks up takes no address from another.
 */
export class NameTables {
  readonly #state: GatewayState;
  readonly #block: NameBlock;
  readonly #tables = new Map<string, NameTable>();

  constructor(state: GatewayState, block: NameBlock) {
    this.#state = state;
    this.#block = block;
  }

  addressOf(sandbox: string, name: string): string {
    return this.#block.address(this.#table(sandbox).slotOf(name));
  }

  nameAt(sandbox: string, address: string | undefined): string | undefined {
    const slot = this.#block.slot(address);
    return slot === undefined ? undefined : this.#table(sandbox).nameAt(slot);
  }

  forget(sandbox: string): void {
    this.#tables.delete(sandbox);
  }

  #table(sandbox: string): NameTable {
    let table = this.#tables.get(sandbox);
    if (table === undefined) {
      table = new NameTable(this.#block.size, this.#state.names(sandbox), (slot, name) =>
        this.#state.setName(sandbox, slot, name),
      );
      this.#tables.set(sandbox, table);
    }
    return table;
  }
}

/** When it is full, the name that was used longest ago loses its address. */
class NameTable {
  readonly #end: number;
  readonly #save: (slot: number, name: string) => void;
  readonly #slots = new Map<string, number>();
  readonly #names = new Map<number, string>();

  constructor(
    size: number,
    known: readonly { slot: number; name: string }[],
    save: (slot: number, name: string) => void,
  ) {
    this.#end = size - 1;
    this.#save = save;
    for (const { slot, name } of known) {
      this.#slots.set(name, slot);
      this.#names.set(slot, name);
    }
  }

  slotOf(name: string): number {
    const known = this.#slots.get(name);
    const slot = known ?? this.#freeSlot();
    this.#slots.delete(name);
    this.#slots.set(name, slot);
    if (known === undefined) {
      this.#names.set(slot, name);
      this.#save(slot, name);
    }
    return slot;
  }

  nameAt(slot: number): string | undefined {
    const name = this.#names.get(slot);
    if (name !== undefined) this.slotOf(name);
    return name;
  }

  #freeSlot(): number {
    const next = firstSlot + this.#names.size;
    if (next < this.#end) return next;
    const [[oldest, slot] = ['', firstSlot]] = this.#slots;
    this.#slots.delete(oldest);
    return slot;
  }
}
