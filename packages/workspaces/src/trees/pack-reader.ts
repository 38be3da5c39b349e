import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { decodeNode, type TreeEntry } from './tree-node.ts';
import type { NodeLocation } from './tree-root.ts';

/** Reads stored directories. */
export class PackReader implements Disposable {
  readonly #controlDir: string;
  readonly #files = new Map<string, number>();

  constructor(controlDir: string) {
    this.#controlDir = controlDir;
  }

  #open(pack: string): number {
    const known = this.#files.get(pack);
    if (known !== undefined) return known;
    for (const folder of ['packs', 'tmp']) {
      try {
        const file = openSync(join(this.#controlDir, folder, `${pack}.pack`), 'r');
        this.#files.set(pack, file);
        return file;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
    }
    throw new CoppiceError('corrupt', `the pack ${pack} is missing`, { hint: 'Run `jvs verify --all`.' });
  }

  readNode(at: NodeLocation): TreeEntry[] {
    const file = this.#open(at.pack);
    if (at.offset + at.length > fstatSync(file).size)
      throw new CoppiceError('corrupt', `the pack ${at.pack} is shorter than it was`);
    const bytes = Buffer.alloc(at.length);
    readSync(file, bytes, 0, at.length, at.offset);
    return decodeNode(bytes);
  }

  [Symbol.dispose](): void {
    for (const file of this.#files.values()) closeSync(file);
    this.#files.clear();
  }
}
