import { randomUUID } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import { isUsableSlot } from './address-plan.ts';
import { type Cidr, formatCidr, parseCidr } from './cidr.ts';

interface Page {
  readonly range: string;
  /** The slot handed out last: addresses are used again as late as possible. */
  readonly lastSlot: number;
  readonly slots: Readonly<Record<string, number>>;
}

/** Which sandbox has which address, kept in a file so that it outlives the daemon. One process writes it. */
export class AddressBook {
  readonly #file: string;
  #page: Page | undefined;

  private constructor(file: string, page: Page | undefined) {
    this.#file = file;
    this.#page = page;
  }

  static async open(file: string): Promise<AddressBook> {
    let text: string;
    try {
      text = await readFile(file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new AddressBook(file, undefined);
      throw error;
    }
    return new AddressBook(file, parsePage(file, text));
  }

  get range(): Cidr | undefined {
    return this.#page === undefined ? undefined : parseCidr(this.#page.range);
  }

  slotOf(sandboxId: string): number | undefined {
    return this.#page?.slots[sandboxId];
  }

  get slots(): ReadonlyMap<string, number> {
    return new Map(Object.entries(this.#page?.slots ?? {}));
  }

  async setRange(range: Cidr): Promise<void> {
    await this.#write({ range: formatCidr(range), lastSlot: 1, slots: {} });
  }

  async take(sandboxId: string): Promise<number> {
    const page = this.#page;
    if (page === undefined) throw new Error('no range chosen');
    const taken = new Set(Object.values(page.slots));
    for (let step = 1; step <= 0xffff; step += 1) {
      const slot = (page.lastSlot + step) % 0x1_0000;
      if (!isUsableSlot(slot) || taken.has(slot)) continue;
      await this.#write({ ...page, lastSlot: slot, slots: { ...page.slots, [sandboxId]: slot } });
      return slot;
    }
    throw new CoppiceError('limit_reached', `every address of ${page.range} is in use`);
  }

  async free(sandboxId: string): Promise<void> {
    if (this.#page?.slots[sandboxId] === undefined) return;
    const { [sandboxId]: _freed, ...slots } = this.#page.slots;
    await this.#write({ ...this.#page, slots });
  }

  async erase(): Promise<void> {
    await rm(this.#file, { force: true });
    this.#page = undefined;
  }

  async #write(page: Page): Promise<void> {
    const fresh = `${this.#file}.${randomUUID()}`;
    await writeFile(fresh, `${JSON.stringify(page, null, 2)}\n`, { mode: 0o600 });
    await rename(fresh, this.#file);
    this.#page = page;
  }
}

function parsePage(file: string, text: string): Page {
  try {
    const page = JSON.parse(text) as Page;
    parseCidr(page.range);
    const slots = Object.values(page.slots);
    if (Number.isInteger(page.lastSlot) && slots.every(isUsableSlot)) return page;
  } catch (cause) {
    throw corrupt(file, cause);
  }
  throw corrupt(file);
}

const corrupt = (file: string, cause?: unknown): CoppiceError =>
  new CoppiceError('corrupt', `${file} does not hold the addresses of this home`, {
    hint: 'Stop every sandbox, delete the file, and start them again: they get new addresses.',
    cause,
  });
