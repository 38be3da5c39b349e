import type { PoolCalls } from '../native/pool-server.ts';
import { bytesOfText } from './path-text.ts';
import { decodeEntry, nameOf, type TreeEntry } from './tree-entry.ts';

/** Read at once. A sandbox decides how much is in a directory; nobody holds all of it. */
const pageEntries = 16_384;

/** The entries of a directory of one layer, in the order of the bytes of their names. */
export class LayerListing {
  readonly #server: PoolCalls;
  readonly #layerDir: string;
  readonly #path: string;
  #records: Buffer[] = [];
  #at = 0;
  #last: Buffer = Buffer.alloc(0);
  #more = true;

  constructor(server: PoolCalls, layerDir: string, path: string) {
    this.#server = server;
    this.#layerDir = layerDir;
    this.#path = path;
  }

  /** Of the entry that is next; undefined at the end. */
  async peek(): Promise<Buffer | undefined> {
    if (this.#at === this.#records.length && this.#more) await this.#read();
    const record = this.#records[this.#at];
    return record === undefined ? undefined : nameOf(record);
  }

  /** The entry that was looked at. */
  take(): TreeEntry {
    const record = this.#records[this.#at]!;
    this.#at += 1;
    return decodeEntry(record);
  }

  /** Keeps no more than where it is; what comes next is read again. */
  release(): void {
    const done = this.#records[this.#at - 1];
    if (done !== undefined) this.#last = Buffer.from(nameOf(done));
    this.#more ||= this.#at < this.#records.length;
    this.#records = [];
    this.#at = 0;
  }

  async #read(): Promise<void> {
    this.release();
    const place = bytesOfText(this.#path);
    const records = await this.#server.call('list', this.#layerDir, place, this.#last, String(pageEntries));
    this.#more = records.pop()?.toString() === 'more';
    this.#records = records;
  }
}
