import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { LayerListing } from './layer-listing.ts';
import { bytesOfText } from './path-text.ts';
import { decodeEntry, type TreeEntry } from './tree-entry.ts';

/** Something that is visible in a layered tree. */
export interface TreeNode {
  readonly entry: TreeEntry;
  /** From the root, without a leading slash; the root itself is empty. */
  readonly path: string;
  /** The directory of the layer that the entry was found in. */
  readonly layerDir: string;
  /** For directories: which layers its content comes from. */
  readonly inUpper: boolean;
  readonly inImage: boolean;
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
    return { entry, path: '', layerDir: this.tree.upperDir, inUpper: true, inImage: true };
  }

  /** What its layers have in a directory; undefined where a layer has no part in it. */
  listUpper({ inUpper, path }: TreeNode): LayerListing | undefined {
    return inUpper ? new LayerListing(this.#server, this.tree.upperDir, path) : undefined;
  }

  listImage({ inImage, path }: TreeNode): LayerListing | undefined {
    return inImage ? new LayerListing(this.#server, this.tree.imageDir, path) : undefined;
  }

  /** What the overlay makes of a name, given what its layers have under it. */
  combine(
    directory: TreeNode,
    upper: TreeEntry | undefined,
    image: TreeEntry | undefined,
  ): TreeNode | undefined {
    if (upper?.whiteout) return undefined;
    const entry = upper ?? image;
    if (entry === undefined || entry.whiteout) return undefined;
    const path = pathIn(directory.path, entry.name);
    const isDirectory = entry.kind === 'directory';
    const inUpper = upper !== undefined;
    return {
      entry,
      path,
      layerDir: inUpper ? this.tree.upperDir : this.tree.imageDir,
      inUpper,
      inImage: isDirectory && image?.kind === 'directory' && !(upper?.opaque ?? false),
    };
  }

  /** One name in a directory, without listing it. */
  async child(directory: TreeNode, name: string): Promise<TreeNode | undefined> {
    const [upper, image] = await Promise.all([
      directory.inUpper ? this.#look(this.tree.upperDir, directory.path, name) : undefined,
      directory.inImage ? this.#look(this.tree.imageDir, directory.path, name) : undefined,
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
  async below(directory: TreeNode, name: string): Promise<TreeEntry | undefined> {
    const entry = directory.inImage ? await this.#look(this.tree.imageDir, directory.path, name) : undefined;
    return entry?.whiteout ? undefined : entry;
  }

  async #look(layerDir: string, directory: string, name: string): Promise<TreeEntry | undefined> {
    const place = bytesOfText(pathIn(directory, name));
    const [record] = await this.#server.call('look-if', layerDir, place);
    return record === undefined ? undefined : decodeEntry(record);
  }
}
