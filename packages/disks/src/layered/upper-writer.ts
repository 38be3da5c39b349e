import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { FileContent } from './file-content.ts';
import { attributesOf, setAttributes } from './node-attributes.ts';
import { splitPath, withDirectory } from './open-beneath.ts';
import { isBelow } from './path-order.ts';
import { bytesOfText } from './path-text.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import type { NodeAttributes, TreeWriter } from './tree-writer.ts';

const stagedPrefix = '.merge.';

/**
 * Writes to the upper of a tree that nothing has mounted, in the form that overlayfs gives it: parents are copied up,
 * what the image has is hidden by whiteouts, a directory in the place of a hidden one is opaque.
 */
export class UpperWriter implements TreeWriter {
  readonly #server: PoolCalls;
  readonly #tree: LayeredTree;
  readonly #view: TreeView;
  /** In the upper already: what is written next is often in the same directory. Nobody else writes here. */
  #directory: TreeNode | undefined;

  constructor(server: PoolCalls, tree: LayeredTree) {
    this.#server = server;
    this.#tree = tree;
    this.#view = new TreeView(server, tree);
  }

  /** Removes what a writer that was killed had staged. */
  async sweep(): Promise<void> {
    const besides = dirname(this.#tree.upperDir);
    for (const name of await readdir(besides))
      if (name.startsWith(stagedPrefix)) await rm(join(besides, name), { force: true });
  }

  async writeFile(path: string, content: FileContent, attributes: NodeAttributes): Promise<void> {
    await this.#replace(path, attributes, async (directory, name) => {
      await this.#server.call('copy-content', content.layerDir, bytesOfText(content.path), directory, name);
    });
  }

  async makeSymlink(path: string, target: string, attributes: NodeAttributes): Promise<void> {
    await this.#replace(path, attributes, (directory, name) =>
      symlink(bytesOfText(target), join(directory, name)),
    );
  }

  async makeLink(path: string, existing: string): Promise<void> {
    const place = await this.#place(path);
    await this.#clear(place);
    const from = bytesOfText(existing.replace(/^\/+/, ''));
    await this.#server.call('link', this.#tree.upperDir, from, bytesOfText(place.path));
  }

  async makeDirectory(path: string, attributes: NodeAttributes): Promise<void> {
    const place = await this.#place(path);
    const standing = await this.#view.child(place.parent, place.name);
    if (standing?.entry.kind === 'directory') return;
    const below = await this.#view.below(place.parent, place.name);
    await this.#clear(place);
    await this.#makeUpperDirectory(place.path, attributes);
    if (below?.entry.kind === 'directory') {
      await this.#server.call('set-opaque', this.#tree.upperDir, bytesOfText(place.path));
    }
  }

  async remove(path: string): Promise<void> {
    const { parent: parentPath, name } = splitPath(path.replace(/^\/+/, ''));
    const known = this.#directory;
    const parent = known?.path === parentPath ? known : await this.#view.find(parentPath);
    if (parent?.entry.kind !== 'directory') return;
    if ((await this.#view.child(parent, name)) === undefined) return;
    const place = await this.#place(path);
    await this.#clear(place);
    if ((await this.#view.below(place.parent, name)) !== undefined) {
      await this.#server.call('whiteout', this.#tree.upperDir, bytesOfText(place.path));
    }
  }

  async setAttributes(path: string, attributes: NodeAttributes): Promise<void> {
    const relative = path.replace(/^\/+/, '');
    const node = await this.#view.find(relative);
    if (node === undefined) throw new CoppiceError('not_found', `${path} does not exist.`);
    if (node.inUpper) await setAttributes(this.#server, this.#tree.upperDir, relative, attributes);
    else await this.#copyUp(path, node, attributes);
  }

  async #copyUp(path: string, node: TreeNode, attributes: NodeAttributes): Promise<void> {
    if (node.entry.kind === 'symlink') {
      await this.makeSymlink(path, node.entry.target, attributes);
      return;
    }
    if (node.entry.kind === 'directory') {
      const place = await this.#place(path);
      await this.#makeUpperDirectory(place.path, attributes);
      return;
    }
    await this.writeFile(path, new FileContent(this.#server, node), attributes);
  }

  /** The directory that holds the path, present in the upper from now on. */
  async #place(path: string): Promise<{ parent: TreeNode; name: string; path: string }> {
    const relative = path.replace(/^\/+/, '');
    const { parent: parentPath, name } = splitPath(relative);
    const known = this.#directory;
    const isOnTheWay = known !== undefined && (known.path === parentPath || isBelow(parentPath, known.path));
    let parent = isOnTheWay ? known : await this.#view.root();
    const rest = parentPath.slice(parent.path.length);
    for (const part of rest.split('/').filter((component) => component !== '')) {
      let next: TreeNode | undefined = await this.#view.child(parent, part);
      if (next?.entry.kind !== 'directory') {
        throw new CoppiceError('not_found', `The directory of ${path} does not exist.`);
      }
      if (!next.inUpper) {
        await this.#makeUpperDirectory(next.path, await attributesOf(this.#server, next));
        next = { ...next, inUpper: true };
      }
      parent = next;
    }
    this.#directory = parent;
    return { parent, name, path: relative };
  }

  async #makeUpperDirectory(path: string, attributes: NodeAttributes): Promise<void> {
    const { parent, name } = splitPath(path);
    await withDirectory(this.#tree.upperDir, parent, (entryPath) => mkdir(entryPath(name), { mode: 0o700 }));
    await setAttributes(this.#server, this.#tree.upperDir, path, attributes);
  }

  /** Takes away what the upper itself has there: an entry, a whole directory or a whiteout. */
  async #clear(place: { path: string }): Promise<void> {
    const known = this.#directory;
    if (known !== undefined && (known.path === place.path || isBelow(known.path, place.path)))
      this.#directory = undefined;
    await this.#server.call('remove', this.#tree.upperDir, bytesOfText(place.path));
  }

  /** Staged beside the upper, so that nothing half written is ever in the tree. */
  async #replace(
    path: string,
    attributes: NodeAttributes,
    make: (directory: string, name: string) => Promise<void>,
  ): Promise<void> {
    const place = await this.#place(path);
    const besides = dirname(this.#tree.upperDir);
    const stagedName = `${stagedPrefix}${randomBytes(6).toString('hex')}`;
    const staged = join(besides, stagedName);
    try {
      await make(besides, stagedName);
      await setAttributes(this.#server, besides, stagedName, attributes);
      await this.#clear(place);
      const { parent, name } = splitPath(place.path);
      await withDirectory(this.#tree.upperDir, parent, (entryPath) => rename(staged, entryPath(name)));
    } catch (error) {
      await rm(staged, { force: true });
      throw error;
    }
  }
}
