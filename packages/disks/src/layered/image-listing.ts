import type { LayerListing } from './layer-listing.ts';
import { type ImageNode, stackEntries } from './stack-entries.ts';
import type { TreeEntry } from './tree-entry.ts';

/** What the layers of an image have in one directory, name by name in the order of their bytes. */
export class ImageListing {
  /** Topmost first. */
  readonly #layers: readonly { readonly dir: string; readonly listing: LayerListing }[];
  #named: readonly boolean[] = [];

  constructor(layers: readonly { readonly dir: string; readonly listing: LayerListing }[]) {
    this.#layers = layers;
  }

  /** The name that is next; undefined at the end. */
  async peek(): Promise<Buffer | undefined> {
    const names: (Buffer | undefined)[] = [];
    let first: Buffer | undefined;
    for (const { listing } of this.#layers) {
      const name = await listing.peek();
      names.push(name);
      if (name !== undefined && (first === undefined || name.compare(first) < 0)) first = name;
    }
    this.#named = names.map((name) => first !== undefined && name?.equals(first) === true);
    return first;
  }

  /** What the image shows under the name that was looked at: nothing where its topmost layer only deletes it. */
  take(): ImageNode | undefined {
    const entries: (TreeEntry | undefined)[] = this.#layers.map(({ listing }, index) =>
      this.#named[index] === true ? listing.take() : undefined,
    );
    return stackEntries(
      this.#layers.map(({ dir }) => dir),
      entries,
    );
  }

  release(): void {
    for (const { listing } of this.#layers) listing.release();
  }
}
