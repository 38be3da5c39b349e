import type { LayeredTree } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { type CompareOptions, compareNodes } from './compare-trees.ts';
import { openFileBeneath } from './open-beneath.ts';
import { existsNowhere, resolveInTree } from './read-tree-file.ts';
import type { TextDiffer } from './text-differ.ts';
import { type TreeNode, TreeView } from './tree-view.ts';

export interface UnifiedDiff {
  /** `none` when both sides are the same; `directory` when one of them is one. Only `text` has a text. */
  readonly result: 'text' | 'none' | 'directory' | 'binary' | 'too_large';
  /** In the form of `diff -u`; empty without text. */
  readonly text: string;
}

const maxBytes = 2 * 1024 ** 2;

/** The change of one file as text. A symbolic link counts as a text with its target in it. */
export const unifiedDiff = async (
  { server, differ }: { server: PoolCalls; differ: TextDiffer },
  before: LayeredTree,
  after: LayeredTree,
  path: string,
  { signal }: CompareOptions = {},
): Promise<UnifiedDiff> => {
  const [one, other] = await Promise.all(
    [before, after].map((tree) => resolveInTree(new TreeView(server, tree), path, { followLast: false })),
  );
  if (one === undefined && other === undefined) {
    throw existsNowhere(path);
  }
  if (one?.entry.kind === 'directory' || other?.entry.kind === 'directory')
    return { result: 'directory', text: '' };
  if ((await compareNodes(server, one, other)) === undefined) return { result: 'none', text: '' };
  const [oldContent, newContent] = await Promise.all([contentOf(one), contentOf(other)]);
  if (oldContent === undefined || newContent === undefined) return { result: 'too_large', text: '' };
  if (oldContent.includes(0) || newContent.includes(0)) return { result: 'binary', text: '' };
  const name = path.replace(/^\/+/, '');
  const pair = {
    before: oldContent.toString(),
    after: newContent.toString(),
    beforeName: one === undefined ? '/dev/null' : `a/${name}`,
    afterName: other === undefined ? '/dev/null' : `b/${name}`,
  };
  const text = await differ.diff(pair, signal);
  const body = text.replace(/^=+\n/, '');
  return { result: 'text', text: modeLines(one, other) + body };
};

const modeLines = (one: TreeNode | undefined, other: TreeNode | undefined): string => {
  if (one === undefined || other === undefined || one.entry.mode === other.entry.mode) return '';
  return `old mode ${one.entry.mode.toString(8)}\nnew mode ${other.entry.mode.toString(8)}\n`;
};

/** Undefined for what is too large to be compared as text. */
export const contentOf = async (node: TreeNode | undefined): Promise<Buffer | undefined> => {
  if (node?.entry.kind === 'symlink') return Buffer.from(node.entry.target);
  if (node?.entry.kind !== 'file') return Buffer.alloc(0);
  const file = await openFileBeneath(node.layerDir, node.path);
  try {
    const { size } = await file.stat();
    if (size > maxBytes) return undefined;
    const buffer = Buffer.alloc(size);
    const { bytesRead } = await file.read(buffer, 0, size, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
};
