import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { ImageListing } from './image-listing.ts';
import { LayerListing } from './layer-listing.ts';
import { bytesOfText } from './path-text.ts';
import { type ImageNode, stackEntries } from './stack-entries.ts';
import { decodeEntry, type TreeEntry } from './tree-entry.ts';

/** Something that is visible in a layered tree. */
export interface TreeNode {
  readonly entry: TreeEntry;
  /** From the root, without a leading slash; the root itself is empty. */
  readonly path: string;
  /** The directory of the layer that the entry was found in. */
  readonly layerDir: string;
  /** For directories: which layers its content comes from; of the image topmost first. */
  readonly inUpper: boolean;
  readonly imageDirs: readonly string[];
}

/** A sandbox decides how deep its directories lie; each path is text in our memory, and goes to coppice-pool whole. */
const maxPathChars = 65_536;

const pathIn = (directory: string, name: string): string => {
  if (directory.length + name.length >= maxPathChars)
    throw new CoppiceError(
      'unsupported',
      `Directories lie too deep: a path has more than ${maxPathChars} characters.`,
      {
        hint: `Remove it or move it up: it begins with /${directory.slice(0, 200)}`,
      },
    );
  return directory === '' ? name : `${directory}/${name}`;
};

/** Shows a layered tree as the overlay over it would, without mounting it and without following a link. */
export class TreeView {
  readonly tree: LayeredTree;
  readonly #server: PoolCalls;

  constructor(server: PoolCalls, tree: LayeredTree) {
    this.#server = server;
    this.tree = tree;
  }

  async root(): Promise<TreeNode> {
    const [record] = await this.#server.call('look', this.tree.upperDir, '');
    const entry = decodeEntry(record!);
    const { upperDir, imageDirs } = this.tree;
    return { entry, path: '', layerDir: upperDir, inUpper: true, imageDirs };
  }

  /** What its layers have in a directory; undefined where a layer has no part in it. */
  listUpper({ inUpper, path }: TreeNode): LayerListing | undefined {
    return inUpper ? new LayerListing(this.#server, this.tree.upperDir, path) : undefined;
  }

  listImage({ imageDirs, path }: TreeNode): ImageListing | undefined {
    if (imageDirs.length === 0) return undefined;
    return new ImageListing(
      imageDirs.map((dir) => ({ dir, listing: new LayerListing(this.#server, dir, path) })),
    );
  }

  /** What the overlay makes of a name, given what its layers have under it. */
  combine(
    directory: TreeNode,
    upper: TreeEntry | undefined,
    image: ImageNode | undefined,
  ): TreeNode | undefined {
    if (upper?.whiteout) return undefined;
    const entry = upper ?? image?.entry;
    if (entry === undefined) return undefined;
    const path = pathIn(directory.path, entry.name);
    const merges = entry.kind === 'directory' && !(upper?.opaque ?? false);
    return {
      entry,
      path,
      layerDir: upper === undefined ? image!.layerDir : this.tree.upperDir,
      inUpper: upper !== undefined,
      imageDirs: merges ? (image?.dirs ?? []) : [],
    };
  }

  /** One name in a directory, without listing it. */
  async child(directory: TreeNode, name: string): Promise<TreeNode | undefined> {
    const [upper, image] = await Promise.all([
      directory.inUpper ? this.#look(this.tree.upperDir, directory.path, name) : undefined,
      this.below(directory, name),
    ]);
    return this.combine(directory, upper, image);
  }

  /** What stands at the path, no link followed; undefined when nothing does. */
  async find(path: string): Promise<TreeNode | undefined> {
    return this.findBelow(await this.root(), path);
  }

  /** The same from a directory on. */
  async findBelow(from: TreeNode, path: string): Promise<TreeNode | undefined> {
    let node: TreeNode | undefined = from;
    for (const name of path.split('/').filter((part) => part !== '')) {
      if (node === undefined || node.entry.kind !== 'directory') return undefined;
      node = await this.child(node, name);
    }
    return node;
  }

  /** What the image alone would show in this directory under the name, if the upper had nothing there. */
  async below({ imageDirs, path }: TreeNode, name: string): Promise<ImageNode | undefined> {
    return stackEntries(imageDirs, await Promise.all(imageDirs.map((dir) => this.#look(dir, path, name))));
  }

  async #look(layerDir: string, directory: string, name: string): Promise<TreeEntry | undefined> {
    const place = bytesOfText(pathIn(directory, name));
    const [record] = await this.#server.call('look-if', layerDir, place);
    return record === undefined ? undefined : decodeEntry(record);
  }
}
