import type { LayeredTree, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { bytesOfText } from './path-text.ts';
import { type TreeNode, TreeView } from './tree-view.ts';

/** A change with both of its sides. */
export interface NodeChange {
  readonly path: string;
  readonly change: TreeChange['change'];
  readonly before: TreeNode | undefined;
  readonly after: TreeNode | undefined;
}

export interface CompareOptions {
  readonly signal?: AbortSignal;
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

/**
 * What differs between two trees, parents before what is in them, names in order of their text. Looks only where one of
 * the uppers has something when both stand on the same image.
 */
export async function* compareTrees(
  server: PoolCalls,
  before: LayeredTree,
  after: LayeredTree,
  options: CompareOptions = {},
): AsyncGenerator<NodeChange> {
  const views = { before: new TreeView(server, before), after: new TreeView(server, after) };
  const roots = { before: await views.before.root(), after: await views.after.root() };
  const sameImage = before.imageDir === after.imageDir;
  const stack: { before: TreeNode | undefined; after: TreeNode | undefined }[] = [roots];
  const rootChange = await compareNodes(server, roots.before, roots.after);
  if (rootChange !== undefined) yield { path: '', change: rootChange, ...roots };
  const listings = async (view: TreeView, directory: TreeNode | undefined) =>
    directory === undefined
      ? { upper: new Map(), image: new Map() }
      : { upper: await view.listUpper(directory), image: await view.listImage(directory) };

  for (let pair = stack.pop(); pair !== undefined; pair = stack.pop()) {
    options.signal?.throwIfAborted();
    const shared = sameImage && pair.before?.inImage === true && pair.after?.inImage === true;
    if (shared && !pair.before?.inUpper && !pair.after?.inUpper) continue;
    const [one, other] = await Promise.all([
      listings(views.before, pair.before),
      listings(views.after, pair.after),
    ]);
    const names = new Set([...one.upper.keys(), ...other.upper.keys()]);
    if (!shared) for (const name of [...one.image.keys(), ...other.image.keys()]) names.add(name);
    const deeper: typeof stack = [];
    for (const name of [...names].sort()) {
      const nodes = {
        before: pair.before && views.before.combine(pair.before, one.upper.get(name), one.image.get(name)),
        after: pair.after && views.after.combine(pair.after, other.upper.get(name), other.image.get(name)),
      };
      const change = await compareNodes(server, nodes.before, nodes.after);
      const path = nodes.after?.path ?? nodes.before?.path;
      if (change !== undefined && path !== undefined) yield { path, change, ...nodes };
      const inside = {
        before: nodes.before?.entry.kind === 'directory' ? nodes.before : undefined,
        after: nodes.after?.entry.kind === 'directory' ? nodes.after : undefined,
      };
      if (inside.before !== undefined || inside.after !== undefined) deeper.push(inside);
    }
    stack.push(...deeper.reverse());
  }
}
