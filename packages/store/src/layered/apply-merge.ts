import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree, MergePlan } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { FileContent } from './file-content.ts';
import { attributesOf } from './node-attributes.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import type { NodeAttributes, TreeWriter } from './tree-writer.ts';

export interface ApplyMergeOptions {
  /** Whose side of each conflict is kept. Without it a plan with conflicts is refused whole. */
  readonly prefer?: 'ours' | 'theirs';
}

/** Does what the plan says. `theirs` is a snapshot, or stands still meanwhile. Returns how many paths were written. */
export const applyMerge = async (
  server: PoolCalls,
  plan: Pick<MergePlan, 'changes' | 'conflicts'>,
  theirs: LayeredTree,
  writer: TreeWriter,
  options: ApplyMergeOptions = {},
): Promise<number> => {
  const { conflicts } = plan;
  if (conflicts.length > 0 && options.prefer === undefined) {
    const shown = conflicts.slice(0, 10).map((conflict) => conflict.path);
    throw new CoppiceError(
      'conflict',
      `Both sides changed ${conflicts.length} path(s): ${shown.join(', ')}${conflicts.length > shown.length ? ', …' : ''}`,
      {
        hint: 'Nothing was written. Choose a side with `prefer`, or settle them first.',
        details: { conflicts },
      },
    );
  }
  const modeOnly = new Set(plan.changes.filter(({ change }) => change === 'mode').map(({ path }) => path));
  const forced = new Set(options.prefer === 'theirs' ? conflicts.map(({ path }) => path) : []);
  const paths = [...plan.changes.map(({ path }) => path), ...forced].sort();
  const view = new TreeView(server, theirs);
  const merge = new MergeWriter(server, view, writer);
  const kept: { path: string; node: TreeNode }[] = [];
  // What goes away goes first, the deepest before what holds it; what comes needs its parents before it.
  for (const path of paths.toReversed()) {
    const node = await view.find(path);
    if (node === undefined) await writer.remove(path);
    else kept.push({ path, node });
  }
  for (const { path, node } of kept.reverse()) {
    if (forced.has(path)) await merge.ensureParents(path);
    if (modeOnly.has(path)) await merge.changeAttributes(path, node);
    else await merge.write(path, node);
  }
  await merge.settleDirectories();
  return paths.length;
};

class MergeWriter {
  readonly #server: PoolCalls;
  readonly #view: TreeView;
  readonly #writer: TreeWriter;
  readonly #ensured = new Set<string>();
  /** Where a file of theirs that has several names was written first. */
  readonly #firstNames = new Map<string, string>();
  readonly #directories: { path: string; attributes: NodeAttributes }[] = [];

  constructor(server: PoolCalls, view: TreeView, writer: TreeWriter) {
    this.#server = server;
    this.#view = view;
    this.#writer = writer;
  }

  /** Where our side removed a directory that theirs wrote in. */
  async ensureParents(path: string): Promise<void> {
    for (let slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
      const directory = path.slice(0, slash);
      if (this.#ensured.has(directory)) continue;
      const node = await this.#view.find(directory);
      if (node !== undefined)
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
