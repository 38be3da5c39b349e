import type { FileHandle } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { openFileBeneath } from './open-beneath.ts';
import { type TreeNode, TreeView } from './tree-view.ts';

/** As many as the kernel follows. */
const maxLinks = 40;

/** Finds what a path means inside the tree: links are followed as the sandbox would follow them, the root being its own. */
export const resolveInTree = async (
  view: TreeView,
  path: string,
  options: { followLast: boolean } = { followLast: true },
): Promise<TreeNode | undefined> => {
  const root = await view.root();
  let parents: TreeNode[] = [root];
  let pending = path.split('/').reverse();
  for (let links = 0; pending.length > 0; ) {
    const name = pending.pop()!;
    if (name === '' || name === '.') continue;
    if (name === '..') {
      if (parents.length > 1) parents.pop();
      continue;
    }
    const here = parents.at(-1)!;
    if (here.entry.kind !== 'directory') return undefined;
    const node = await view.child(here, name);
    if (node === undefined) return undefined;
    const isLast = pending.every((part) => part === '' || part === '.');
    if (node.entry.kind === 'symlink' && (!isLast || options.followLast)) {
      links += 1;
      if (links > maxLinks) {
        throw new CoppiceError('invalid_argument', `${path} goes round in a circle of symbolic links.`);
      }
      if (node.entry.target.startsWith('/')) parents = [root];
      pending = [...pending, ...node.entry.target.split('/').reverse()];
    } else {
      parents.push(node);
    }
  }
  return parents.at(-1);
};

export const existsNowhere = (path: string): CoppiceError =>
  new CoppiceError('not_found', `${path} exists on neither side.`, {
    hint: 'Compare without a path to list what changed.',
  });

/** What stands at the path, links on the way followed as the sandbox would; undefined when nothing does. */
export const findInTree = async (
  server: PoolCalls,
  tree: LayeredTree,
  path: string,
): Promise<TreeNode['entry'] | undefined> =>
  (await resolveInTree(new TreeView(server, tree), path, { followLast: false }))?.entry;

/** Opens a regular file of a tree for reading, and nothing outside of the tree whatever links say. The caller closes it. */
export const openTreeFile = async (
  server: PoolCalls,
  tree: LayeredTree,
  path: string,
): Promise<FileHandle> => {
  const node = await resolveInTree(new TreeView(server, tree), path);
  if (node === undefined) throw new CoppiceError('not_found', `${path} does not exist.`);
  return openFileBeneath(node.layerDir, node.path);
};

/** The whole of a file that is not larger than the bound. */
export const readTreeFile = async (
  server: PoolCalls,
  tree: LayeredTree,
  path: string,
  options: { maxBytes: number },
): Promise<Buffer> => {
  const file = await openTreeFile(server, tree, path);
  try {
    const { size } = await file.stat();
    if (size > options.maxBytes) {
      throw new CoppiceError(
        'too_large',
        `${path} has ${size} bytes, more than the ${options.maxBytes} allowed here.`,
      );
    }
    const buffer = Buffer.alloc(size);
    const { bytesRead } = await file.read(buffer, 0, size, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
};
