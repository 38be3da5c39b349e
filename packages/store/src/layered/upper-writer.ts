import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { constants, lchown, lutimes, mkdir, open, rename, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree } from '../layered-tree.ts';
import type { PoolServer } from '../native/pool-server.ts';
import { openFileBeneath, splitPath, withDirectory } from './open-beneath.ts';
import { bytesOfText } from './path-text.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import type { NodeAttributes, TreeWriter } from './tree-writer.ts';

const permissions = (attributes: NodeAttributes): number => attributes.mode & 0o7777;

/**
 * Writes to the upper of a tree that nothing has mounted, in the form that overlayfs gives it: parents are copied up,
 * what the image has is hidden by whiteouts, a directory in the place of a hidden one is opaque.
 */
export class UpperWriter implements TreeWriter {
  readonly #server: PoolServer;
  readonly #tree: LayeredTree;
  readonly #view: TreeView;

  constructor(server: PoolServer, tree: LayeredTree) {
    this.#server = server;
    this.#tree = tree;
    this.#view = new TreeView(server, tree);
  }

  async writeFile(path: string, content: Readable, attributes: NodeAttributes): Promise<void> {
    const place = await this.#place(path);
    // Staged beside the upper, so that nothing half written is ever in the tree.
    const staged = this.#stagingPath();
    try {
      await pipeline(content, createWriteStream(staged, { flags: 'wx', mode: 0o600 }));
      const file = await open(staged, 'r+');
      try {
        await file.chown(attributes.uid, attributes.gid);
        await file.chmod(permissions(attributes));
        await file.utimes(attributes.mtimeMs / 1000, attributes.mtimeMs / 1000);
      } finally {
        await file.close();
      }
      await this.#settle(place, staged);
    } catch (error) {
      await rm(staged, { force: true });
      throw error;
    }
  }

  async makeSymlink(path: string, target: string, attributes: NodeAttributes): Promise<void> {
    const place = await this.#place(path);
    const staged = this.#stagingPath();
    try {
      await symlink(bytesOfText(target), staged);
      await lchown(staged, attributes.uid, attributes.gid);
      await lutimes(staged, attributes.mtimeMs / 1000, attributes.mtimeMs / 1000);
      await this.#settle(place, staged);
    } catch (error) {
      await rm(staged, { force: true });
      throw error;
    }
  }

  async makeDirectory(path: string, attributes: NodeAttributes): Promise<void> {
    const place = await this.#place(path);
    const standing = await this.#view.child(place.parent, place.name);
    if (standing?.entry.kind === 'directory') return;
    const below = await this.#view.below(place.parent, place.name);
    await this.#clear(place);
    await this.#makeUpperDirectory(place.path, attributes);
    if (below?.kind === 'directory') {
      await this.#server.call('set-opaque', this.#tree.upperDir, bytesOfText(place.path));
    }
  }

  async remove(path: string): Promise<void> {
    const { parent: parentPath, name } = splitPath(path.replace(/^\/+/, ''));
    const parent = await this.#view.find(parentPath);
    if (parent?.entry.kind !== 'directory') return;
    if ((await this.#view.child(parent, name)) === undefined) return;
    const place = await this.#place(path);
    await this.#clear(place);
    if ((await this.#view.below(place.parent, name)) !== undefined) {
      await this.#server.call('whiteout', this.#tree.upperDir, bytesOfText(place.path));
    }
  }

  async setMode(path: string, attributes: NodeAttributes): Promise<void> {
    const relative = path.replace(/^\/+/, '');
    const node = await this.#view.find(relative);
    if (node === undefined) throw new CoppiceError('not_found', `${path} does not exist.`);
    if (node.entry.kind === 'symlink') {
      await this.makeSymlink(path, node.entry.target, attributes);
      return;
    }
    if (!node.inUpper) {
      await this.#copyUp(path, node, attributes);
      return;
    }
    const { parent, name } = splitPath(relative);
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    await withDirectory(this.#tree.upperDir, parent, async (entryPath) => {
      const file = await open(entryPath(name === '' ? '.' : name) as unknown as string, flags);
      try {
        await file.chown(attributes.uid, attributes.gid);
        await file.chmod(permissions(attributes));
      } finally {
        await file.close();
      }
    });
  }

  async #copyUp(path: string, node: TreeNode, attributes: NodeAttributes): Promise<void> {
    if (node.entry.kind === 'directory') {
      const place = await this.#place(path);
      await this.#makeUpperDirectory(place.path, attributes);
      return;
    }
    const file = await openFileBeneath(node.layerDir, node.path);
    await this.writeFile(path, file.createReadStream(), attributes).finally(() => file.close());
  }

  /** The directory that holds the path, present in the upper from now on. */
  async #place(path: string): Promise<{ parent: TreeNode; name: string; path: string }> {
    const relative = path.replace(/^\/+/, '');
    const { parent: parentPath, name } = splitPath(relative);
    let parent = await this.#view.root();
    for (const part of parentPath.split('/').filter((component) => component !== '')) {
      let next: TreeNode | undefined = await this.#view.child(parent, part);
      if (next?.entry.kind !== 'directory') {
        throw new CoppiceError('not_found', `The directory of ${path} does not exist.`);
      }
      if (!next.inUpper) {
        await this.#makeUpperDirectory(next.path, {
          ...next.entry,
          mtimeMs: Number(next.entry.mtimeNs) / 1e6,
        });
        next = { ...next, inUpper: true };
      }
      parent = next;
    }
    return { parent, name, path: relative };
  }

  async #makeUpperDirectory(path: string, attributes: NodeAttributes): Promise<void> {
    const { parent, name } = splitPath(path);
    await withDirectory(this.#tree.upperDir, parent, async (entryPath) => {
      await mkdir(entryPath(name), { mode: 0o700 });
      const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
      const directory = await open(entryPath(name) as unknown as string, flags);
      try {
        await directory.chown(attributes.uid, attributes.gid);
        await directory.chmod(permissions(attributes));
        await directory.utimes(attributes.mtimeMs / 1000, attributes.mtimeMs / 1000);
      } finally {
        await directory.close();
      }
    });
  }

  /** Takes away what the upper itself has there: an entry, a whole directory or a whiteout. */
  async #clear(place: { path: string }): Promise<void> {
    await this.#server.call('remove', this.#tree.upperDir, bytesOfText(place.path));
  }

  async #settle(place: { path: string }, staged: string): Promise<void> {
    const { parent, name } = splitPath(place.path);
    await this.#clear(place);
    await withDirectory(this.#tree.upperDir, parent, (entryPath) => rename(staged, entryPath(name)));
  }

  #stagingPath(): string {
    return join(dirname(this.#tree.upperDir), `.merge.${randomBytes(6).toString('hex')}`);
  }
}
