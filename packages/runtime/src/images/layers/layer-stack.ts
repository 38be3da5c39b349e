import { closeSync, constants, lstatSync, openSync, readSync, type Stats } from 'node:fs';
import type { Layer } from './layer-store.ts';

/** One of the layers of an image, as it lies on the disk. */
export interface StackedLayer {
  readonly directory: string;
  readonly layer: Pick<Layer, 'unnamed' | 'whiteouts' | 'opaque'>;
}

/** A place in one layer that takes part in what the image shows there. */
export interface Part {
  readonly stats: Stats;
  readonly index: number;
}

/** What an overlay of layers would show, found without mounting it. Paths are bytes in latin1, from the root, which is empty. */
export class LayerStack {
  readonly #layers: readonly {
    directory: string;
    opaque: ReadonlySet<string>;
    unnamed: ReadonlySet<string>;
  }[];
  readonly #sources: readonly StackedLayer[];

  /** Topmost first. */
  constructor(layers: readonly StackedLayer[]) {
    this.#sources = layers;
    this.#layers = layers.map(({ directory, layer }) => ({
      directory,
      opaque: new Set(layer.opaque),
      unnamed: new Set(layer.unnamed),
    }));
  }

  /** What is visible at a path: several parts where directories are merged, none where nothing is. */
  parts(path: string): Part[] {
    const found: Part[] = [];
    const names = path === '' ? [] : path.split('/');
    for (const [index, { directory, opaque }] of this.#layers.entries()) {
      let place = '';
      let hides = opaque.has('');
      let stats: Stats | undefined = look(directory, '');
      for (const name of names) {
        place = place === '' ? name : `${place}/${name}`;
        stats = look(directory, place);
        if (stats === undefined) break;
        // A deletion, or a file where others have a directory: of what lies below nothing is seen.
        if (!stats.isDirectory()) {
          const shows = place === path && found.length === 0 && !stats.isCharacterDevice();
          return shows ? [{ stats, index }] : found;
        }
        hides ||= opaque.has(place);
      }
      if (stats !== undefined) found.push({ stats, index });
      if (hides) break;
    }
    return found;
  }

  /** The beginning of a file that the image shows at a path; undefined where it shows none. */
  text(path: string, limitBytes: number): string | undefined {
    const [top] = this.parts(path);
    if (top?.stats.isFile() !== true) return undefined;
    const file = openSync(
      `${this.#layers[top.index]!.directory}/${path}`,
      constants.O_RDONLY | constants.O_NOFOLLOW,
    );
    try {
      const bytes = Buffer.alloc(Math.min(top.stats.size, limitBytes));
      return bytes.toString('utf8', 0, readSync(file, bytes));
    } finally {
      closeSync(file);
    }
  }

  /** How a directory must look: as the topmost layer has it that names it. */
  directoryAttributes(path: string): Stats | undefined {
    const parts = this.parts(path).filter(({ stats }) => stats.isDirectory());
    return (parts.find(({ index }) => !this.#layers[index]!.unnamed.has(path)) ?? parts[0])?.stats;
  }

  /**
   * Directories that the overlay of these layers alone would show wrongly: one that a layer has without naming it would lose
   * its owner and mode, and a deletion in one that no other layer has would be seen as a file that is not there.
   */
  *wrongDirectories(): Generator<string, void, undefined> {
    for (const [index, { layer }] of this.#sources.entries()) {
      for (const path of layer.unnamed) {
        if (path === '') continue;
        const parts = this.parts(path);
        if (parts[0]?.index !== index || parts.length < 2) continue;
        if (parts.some((part) => part.index !== index && !this.#layers[part.index]!.unnamed.has(path)))
          yield path;
      }
      for (const path of layer.whiteouts) {
        if (path === '') continue;
        const parts = this.parts(path);
        if (parts.length === 1 && parts[0]?.index === index) yield path;
      }
    }
  }
}

const look = (directory: string, path: string): Stats | undefined =>
  lstatSync(Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(path, 'latin1')]), {
    throwIfNoEntry: false,
  });
