import { isDeepStrictEqual } from 'node:util';
import type { LayeredTree, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import type { ImageListing } from './image-listing.ts';
import type { LayerListing } from './layer-listing.ts';
import { bytesOfText } from './path-text.ts';
import type { ImageNode } from './stack-entries.ts';
import type { TreeEntry } from './tree-entry.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import { Turns } from './turns.ts';

/** A change with both of its sides. */
export interface NodeChange {
  readonly path: string;
  readonly change: TreeChange['change'];
  readonly before: TreeNode | undefined;
  readonly after: TreeNode | undefined;
}

export interface CompareOptions {
  readonly signal?: AbortSignal;
  /** Only this, and what it holds where it is a directory; from the root, without a leading slash. */
  readonly below?: string;
}

/** What the layers of both sides have under one name. */
interface Found {
  upperBefore?: TreeEntry;
  imageBefore?: ImageNode | undefined;
  upperAfter?: TreeEntry;
  imageAfter?: ImageNode | undefined;
}

interface Sides<T> {
  readonly before: T;
  readonly after: T;
}

/** Whether two things that are visible in trees are the same in kind, content, mode, owner and extended attributes. */
export const compareNodes = async (
  server: PoolCalls,
  before: TreeNode | undefined,
  after: TreeNode | undefined,
): Promise<TreeChange['change'] | undefined> => {
  if (before === undefined) return after === undefined ? undefined : 'added';
  if (after === undefined) return 'removed';
  if (before.entry.kind !== after.entry.kind) return 'modified';
  if (!(await sameContent(server, before, after))) return 'modified';
  if (before.entry.uid !== after.entry.uid || before.entry.gid !== after.entry.gid) return 'mode';
  if (before.entry.attributesDigest !== after.entry.attributesDigest) return 'mode';
  // The mode of a link means nothing.
  return before.entry.kind !== 'symlink' && before.entry.mode !== after.entry.mode ? 'mode' : undefined;
};

const sameContent = async (server: PoolCalls, before: TreeNode, after: TreeNode): Promise<boolean> => {
  if (before.entry.kind === 'symlink') return before.entry.target === after.entry.target;
  if (before.entry.kind !== 'file') return true;
  if (before.entry.sizeBytes !== after.entry.sizeBytes) return false;
  if (before.layerDir === after.layerDir && before.path === after.path) return true;
  // A clone keeps all of these, and nobody in a sandbox can set the time of change: so nothing was written since.
  const untouched =
    before.entry.inode === after.entry.inode &&
    before.entry.ctimeNs === after.entry.ctimeNs &&
    before.entry.mtimeNs === after.entry.mtimeNs;
  if (untouched) return true;
  const [answer] = await server.call(
    'compare',
    before.layerDir,
    bytesOfText(before.path),
    after.layerDir,
    bytesOfText(after.path),
  );
  return answer?.toString() === 'equal';
};

/** Deeper than this below, a directory on the way keeps nothing of what it listed. */
const keptLevels = 16;

interface NodePair {
  readonly before: TreeNode | undefined;
  readonly after: TreeNode | undefined;
}

/** What is in one directory on both sides, name by name. */
class DirectoryPair {
  readonly #views: Sides<TreeView>;
  readonly #directories: NodePair;
  /** Both sides show the same image here: what neither upper has is the same. */
  readonly #shared: boolean;
  readonly #uppers: Partial<Sides<LayerListing | undefined>>;
  /** One and the same where both sides show the same image. */
  readonly #images: Partial<Sides<ImageListing | undefined>>;

  constructor(views: Sides<TreeView>, { before, after }: NodePair, sameImage: boolean) {
    this.#views = views;
    this.#directories = { before, after };
    this.#shared = sameImage && isInImage(before) && isInImage(after);
    this.#uppers = {
      before: before && views.before.listUpper(before),
      after: after && views.after.listUpper(after),
    };
    const image = before && views.before.listImage(before);
    this.#images = {
      before: image,
      after: this.#shared ? image : after && views.after.listImage(after),
    };
  }

  /** Whether anything in it can differ. */
  get isOpen(): boolean {
    const { before, after } = this.#directories;
    return !this.#shared || before?.inUpper === true || after?.inUpper === true;
  }

  /** Undefined at the end. A name that shows nothing on either side is passed over. */
  async next(turns: Turns): Promise<NodePair | undefined> {
    for (;;) {
      await turns.step();
      const found = await this.#entries();
      if (found === undefined) return undefined;
      if (this.#shared && found.upperBefore === undefined && found.upperAfter === undefined) continue;
      const { before, after } = this.#directories;
      const nodes = {
        before: before && this.#views.before.combine(before, found.upperBefore, found.imageBefore),
        after: after && this.#views.after.combine(after, found.upperAfter, found.imageAfter),
      };
      if (nodes.before !== undefined || nodes.after !== undefined) return nodes;
    }
  }

  release(): void {
    for (const { before, after } of [this.#uppers, this.#images]) {
      before?.release();
      after?.release();
    }
  }

  /** What the layers have under the first name that is left. */
  async #entries(): Promise<Found | undefined> {
    const uppers = { before: await this.#uppers.before?.peek(), after: await this.#uppers.after?.peek() };
    const images = {
      before: await this.#images.before?.peek(),
      after: this.#shared ? undefined : await this.#images.after?.peek(),
    };
    const names = [uppers.before, uppers.after, images.before, images.after];
    const first = names.reduce<Buffer | undefined>(
      (least, name) =>
        name !== undefined && (least === undefined || name.compare(least) < 0) ? name : least,
      undefined,
    );
    if (first === undefined) return undefined;
    const isFirst = (name: Buffer | undefined): boolean => name?.equals(first) === true;
    const found: Found = {};
    if (isFirst(uppers.before)) found.upperBefore = this.#uppers.before!.take();
    if (isFirst(uppers.after)) found.upperAfter = this.#uppers.after!.take();
    if (isFirst(images.before)) found.imageBefore = this.#images.before!.take();
    if (this.#shared) found.imageAfter = found.imageBefore;
    else if (isFirst(images.after)) found.imageAfter = this.#images.after!.take();
    return found;
  }
}

const isInImage = (node: TreeNode | undefined): boolean => node !== undefined && node.imageDirs.length > 0;

/**
 * What differs between two trees, what holds something before what it holds, names in the order of their bytes. Looks only
 * where one of the uppers has something when both stand on the same image, and holds little of either at any time.
 */
export async function* compareTrees(
  server: PoolCalls,
  before: LayeredTree,
  after: LayeredTree,
  { signal, below = '' }: CompareOptions = {},
): AsyncGenerator<NodeChange> {
  const views = { before: new TreeView(server, before), after: new TreeView(server, after) };
  const sameImage = isDeepStrictEqual(before.imageDirs, after.imageDirs);
  const start = { before: await views.before.find(below), after: await views.after.find(below) };
  const turns = new Turns();
  const stack: DirectoryPair[] = [];
  const enter = (nodes: NodePair): void => {
    const inside = {
      before: nodes.before?.entry.kind === 'directory' ? nodes.before : undefined,
      after: nodes.after?.entry.kind === 'directory' ? nodes.after : undefined,
    };
    if (inside.before === undefined && inside.after === undefined) return;
    const pair = new DirectoryPair(views, inside, sameImage);
    if (!pair.isOpen) return;
    stack.push(pair);
    stack.at(-1 - keptLevels)?.release();
  };
  const visit = async (nodes: NodePair): Promise<NodeChange | undefined> => {
    const change = await compareNodes(server, nodes.before, nodes.after);
    const path = nodes.after?.path ?? nodes.before?.path;
    return change === undefined || path === undefined ? undefined : { path, change, ...nodes };
  };

  for (let nodes: NodePair | undefined = start; nodes !== undefined; ) {
    signal?.throwIfAborted();
    const change = await visit(nodes);
    if (change !== undefined) yield change;
    enter(nodes);
    nodes = undefined;
    for (let here = stack.at(-1); here !== undefined && nodes === undefined; here = stack.at(-1)) {
      nodes = await here.next(turns);
      if (nodes === undefined) stack.pop();
    }
  }
}
