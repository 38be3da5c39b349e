import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree, MergeConflict, MergePlan, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { FileContent } from './file-content.ts';
import { attributesOf } from './node-attributes.ts';
import { splitPath } from './open-beneath.ts';
import { comparePaths, isBelow } from './path-order.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import type { NodeAttributes, TreeWriter } from './tree-writer.ts';
import { Turns } from './turns.ts';

export interface ApplyMergeOptions {
  /** Whose side of each conflict is kept. Without it a plan with conflicts is refused whole. */
  readonly prefer?: 'ours' | 'theirs';
  /** The same for single paths. */
  readonly choose?: Readonly<Record<string, 'ours' | 'theirs'>>;
  /** Directories that theirs has and the target has not are made on the way to what is written. */
  readonly makesParents?: boolean;
}

/** Whose side of that path is kept; undefined where nobody has said. */
export const sideOf = (
  { prefer, choose = {} }: ApplyMergeOptions,
  path: string,
): 'ours' | 'theirs' | undefined => (Object.hasOwn(choose, path) ? choose[path] : prefer);

/** Does what the plan says. `theirs` is a snapshot, or stands still meanwhile. Returns how many paths were written. */
export const applyMerge = async (
  server: PoolCalls,
  plan: Pick<MergePlan, 'changes' | 'conflicts'>,
  theirs: LayeredTree,
  writer: TreeWriter,
  options: ApplyMergeOptions = {},
): Promise<number> => {
  const { conflicts } = plan;
  const open = conflicts.filter(({ path }) => sideOf(options, path) === undefined);
  if (open.length > 0) {
    const shown = open.slice(0, 10).map((conflict) => conflict.path);
    throw new CoppiceError(
      'conflict',
      `Both sides changed ${open.length} path(s): ${shown.join(', ')}${open.length > shown.length ? ', …' : ''}`,
      {
        hint: 'Nothing was written. Choose a side with `prefer`, or settle them first.',
        details: { conflicts: open },
      },
    );
  }
  const view = new TreeView(server, theirs);
  const merge = new MergeWriter(server, view, writer);
  const preferred = conflicts.filter(({ path }) => sideOf(options, path) === 'theirs');
  const turns = new Turns();
  let count = 0;
  // What goes away goes first, the deepest before what holds it; what comes needs its parents before it.
  for (const { path, change } of inOrder(plan.changes, preferred, 'backwards')) {
    await turns.step();
    if (change === 'removed') await writer.remove(path);
    count += 1;
  }
  for (const { path, change, isForced } of inOrder(plan.changes, preferred, 'forwards')) {
    await turns.step();
    if (change === 'removed') continue;
    if (isForced || options.makesParents) await merge.ensureParents(path);
    const node = await merge.find(path);
    if (change === 'mode' && !isForced) await merge.changeAttributes(path, node);
    else await merge.write(path, node);
  }
  await merge.settleDirectories();
  return count;
};

interface Step {
  readonly path: string;
  readonly change: TreeChange['change'];
  /** Our side changed it too, and gives way. */
  readonly isForced: boolean;
}

/** Both lists as one; each is in the order of paths already. */
function* inOrder(
  changes: readonly TreeChange[],
  preferred: readonly MergeConflict[],
  direction: 'forwards' | 'backwards',
): Generator<Step> {
  const sign = direction === 'forwards' ? 1 : -1;
  const at = <T>(list: readonly T[], index: number): T | undefined =>
    list[sign > 0 ? index : list.length - 1 - index];
  for (let [one, other] = [0, 0]; ; ) {
    const [change, conflict] = [at(changes, one), at(preferred, other)];
    if (change === undefined && conflict === undefined) return;
    const isFirst =
      conflict === undefined || (change !== undefined && sign * comparePaths(change.path, conflict.path) < 0);
    if (isFirst && change !== undefined) {
      one += 1;
      yield { path: change.path, change: change.change, isForced: false };
    } else if (conflict !== undefined) {
      other += 1;
      yield { path: conflict.path, change: conflict.theirs, isForced: true };
    }
  }
}

class MergeWriter {
  readonly #server: PoolCalls;
  readonly #view: TreeView;
  readonly #writer: TreeWriter;
  readonly #ensured = new Set<string>();
  /** Where a file of theirs that has several names was written first. */
  readonly #firstNames = new Map<string, string>();
  readonly #directories: { path: string; attributes: NodeAttributes }[] = [];
  /** Where the last look ended: the next path is often in the same directory. */
  #directory: TreeNode | undefined;

  constructor(server: PoolCalls, view: TreeView, writer: TreeWriter) {
    this.#server = server;
    this.#view = view;
    this.#writer = writer;
  }

  /** In theirs, which stands still. */
  async find(path: string): Promise<TreeNode> {
    const relative = path.replace(/^\/+/, '');
    const { parent, name } = splitPath(relative);
    const from = this.#directory;
    const directory =
      from !== undefined && (parent === from.path || isBelow(parent, from.path))
        ? await this.#view.findBelow(from, parent.slice(from.path.length))
        : await this.#view.find(parent);
    const node = name === '' ? directory : directory && (await this.#view.findBelow(directory, name));
    if (node === undefined)
      throw new CoppiceError('internal', `${path} is no longer in the tree that is merged.`);
    this.#directory = directory;
    return node;
  }

  /** Where our side removed a directory that theirs wrote in. */
  async ensureParents(path: string): Promise<void> {
    for (let slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
      const directory = path.slice(0, slash);
      if (this.#ensured.has(directory)) continue;
      const node = await this.find(directory);
      await this.#writer.makeDirectory(directory, await attributesOf(this.#server, node));
      this.#ensured.add(directory);
    }
  }

  async changeAttributes(path: string, node: TreeNode): Promise<void> {
    if (!(await this.#linked(path, node)))
      await this.#writer.setAttributes(path, await attributesOf(this.#server, node));
  }

  async write(path: string, node: TreeNode): Promise<void> {
    if (await this.#linked(path, node)) return;
    const attributes = await attributesOf(this.#server, node);
    switch (node.entry.kind) {
      case 'directory':
        if (path !== '/') await this.#writer.makeDirectory(path, attributes);
        this.#directories.push({ path, attributes });
        return;
      case 'symlink':
        await this.#writer.makeSymlink(path, node.entry.target, attributes);
        return;
      case 'file':
        await this.#writer.writeFile(path, new FileContent(this.#server, node), attributes);
        return;
      default:
        throw new CoppiceError('unsupported', `${path} is a ${node.entry.kind}, which cannot be merged.`);
    }
  }

  /** Last, the deepest first: what is written in a directory changes its time. */
  async settleDirectories(): Promise<void> {
    for (const { path, attributes } of this.#directories.reverse())
      await this.#writer.setAttributes(path, attributes);
  }

  /** Names of one file stay names of one file, where more than one of them is merged. */
  async #linked(path: string, { entry, layerDir }: TreeNode): Promise<boolean> {
    if (entry.kind !== 'file' || entry.links < 2) return false;
    const identity = `${entry.inode} ${layerDir}`;
    const first = this.#firstNames.get(identity);
    if (first !== undefined) await this.#writer.makeLink(path, first);
    else this.#firstNames.set(identity, path);
    return first !== undefined;
  }
}
