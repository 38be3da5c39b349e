import {
  chmod,
  chown,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CopyingEngine, type LayeredTree, type PoolServer } from '@coppice/disks';
import * as fc from 'fast-check';
import { run } from './pool-fixture.ts';

/** What a person inside would see: path to a line that says all that counts as a change. */
export type View = Map<string, string>;

export type Edit =
  | { readonly kind: 'write'; readonly path: string; readonly text: string }
  | { readonly kind: 'link'; readonly path: string; readonly text: string }
  | { readonly kind: 'mkdir'; readonly path: string }
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'mode'; readonly path: string; readonly mode: number }
  | { readonly kind: 'owner'; readonly path: string; readonly uid: number };

const paths = ['a', 'b', 'l', 'd', 'd/x', 'd/y', 'd/e', 'd/e/z', 'd/e/new', 'n', 'n/m', 'n/m/k'];
const path = fc.constantFrom(...paths);
const text = fc.constantFrom('', 'one\n', 'two\n', 'image a\n', 'image d/x\n');

export const edits = (maxLength: number): fc.Arbitrary<Edit[]> =>
  fc.array(
    fc.oneof(
      fc.record({ kind: fc.constant('write' as const), path, text }),
      fc.record({ kind: fc.constant('link' as const), path, text: fc.constantFrom('a', '/d/x', 'nowhere') }),
      fc.record({ kind: fc.constant('mkdir' as const), path }),
      fc.record({ kind: fc.constant('remove' as const), path }),
      fc.record({
        kind: fc.constant('mode' as const),
        path,
        mode: fc.constantFrom(0o600, 0o644, 0o755, 0o4755),
      }),
      fc.record({ kind: fc.constant('owner' as const), path, uid: fc.constantFrom(0, 1000) }),
    ),
    { maxLength },
  );

/** What cannot be done where it stands (a file in a file) is left undone, on every side alike. */
const impossible = new Set(['ENOENT', 'ENOTDIR', 'EEXIST', 'EISDIR', 'ELOOP']);

const applyEdit = async (root: string, edit: Edit): Promise<void> => {
  const place = join(root, edit.path);
  if (edit.kind === 'remove') return rm(place, { recursive: true, force: true });
  if (edit.kind === 'mode' || edit.kind === 'owner') {
    if ((await lstat(place)).isSymbolicLink()) return;
    return edit.kind === 'mode' ? chmod(place, edit.mode) : chown(place, edit.uid, edit.uid);
  }
  await mkdir(dirname(place), { recursive: true });
  if (edit.kind === 'mkdir') return void (await mkdir(place));
  const standing = await lstat(place).catch(() => undefined);
  if (standing !== undefined && !standing.isFile()) await rm(place, { recursive: true });
  if (edit.kind === 'write') return writeFile(place, edit.text);
  await rm(place, { force: true });
  return symlink(edit.text, place);
};

const viewOf = async (root: string): Promise<View> => {
  const view: View = new Map();
  const visit = async (relative: string): Promise<void> => {
    for (const name of (await readdir(join(root, relative))).sort()) {
      const inside = join(relative, name);
      const place = join(root, inside);
      const status = await lstat(place);
      const owner = `${status.uid}:${status.gid}`;
      const mode = (status.mode & 0o7777).toString(8);
      if (status.isDirectory()) {
        view.set(inside, `directory ${mode} ${owner}`);
        await visit(inside);
      } else if (status.isSymbolicLink()) {
        view.set(inside, `symlink ${owner} ${await readlink(place)}`);
      } else {
        view.set(inside, `file ${mode} ${owner} ${await readFile(place, 'utf8')}`);
      }
    }
  };
  await visit('');
  return view;
};

/** Trees over one image, written to through a real overlay mount. */
export class OverlayBench {
  readonly #root: string;
  readonly #engine: CopyingEngine;
  readonly #imageDirs: readonly string[];
  #count = 0;

  constructor(root: string, server: PoolServer) {
    this.#root = root;
    this.#engine = new CopyingEngine(server, 'copy');
    this.#imageDirs = ['image-3', 'image-2', 'image-1'].map((name) => join(root, name));
  }

  /** Of three layers that hide and replace some of one another. */
  async makeImage(): Promise<void> {
    const [top, middle, bottom] = this.#imageDirs as [string, string, string];
    await mkdir(join(bottom, 'd/e'), { recursive: true });
    await writeFile(join(bottom, 'a'), 'image a\n');
    for (const name of ['b', 'd/x', 'd/gone', 'd/e/hidden', 'n'])
      await writeFile(join(bottom, name), `below ${name}\n`);
    await mkdir(join(middle, 'd/e'), { recursive: true });
    await writeFile(join(middle, 'd/y'), 'image d/y\n');
    await run('mknod', [join(middle, 'd/gone'), 'c', '0', '0']);
    await run('setfattr', ['-n', 'user.overlay.opaque', '-v', 'y', join(middle, 'd/e')]);
    await writeFile(join(middle, 'd/e/z'), 'image d/e/z\n');
    await run('mknod', [join(middle, 'n'), 'c', '0', '0']);
    await mkdir(join(top, 'd'), { recursive: true });
    await writeFile(join(top, 'd/x'), 'image d/x\n');
    await writeFile(join(top, 'b'), 'image b\n');
    await symlink('a', join(top, 'l'));
  }

  async makeTree(): Promise<LayeredTree> {
    const disk = join(this.#root, `tree-${this.#count++}`);
    await mkdir(join(disk, 'upper'), { recursive: true });
    await mkdir(join(disk, 'work'));
    return { imageDirs: this.#imageDirs, upperDir: join(disk, 'upper') };
  }

  async cloneTree(tree: LayeredTree): Promise<LayeredTree> {
    const disk = join(this.#root, `tree-${this.#count++}`);
    await this.#engine.clone(dirname(tree.upperDir), disk, { readOnly: false });
    return { imageDirs: this.#imageDirs, upperDir: join(disk, 'upper') };
  }

  /** Works inside the mounted tree; returns what is seen in it at the end. */
  async inside(
    tree: LayeredTree,
    work: (root: string) => Promise<void> = async () => undefined,
  ): Promise<View> {
    const disk = dirname(tree.upperDir);
    const mounted = join(disk, 'mounted');
    await mkdir(mounted, { recursive: true });
    const layers = `lowerdir=${tree.imageDirs.join(':')},upperdir=${tree.upperDir},workdir=${join(disk, 'work')}`;
    await run('mount', ['-t', 'overlay', 'overlay', '-o', `${layers},userxattr`, mounted]);
    try {
      await work(mounted);
      return await viewOf(mounted);
    } finally {
      await run('umount', [mounted]);
    }
  }

  async edit(tree: LayeredTree, list: readonly Edit[]): Promise<View> {
    return this.inside(tree, async (root) => {
      for (const edit of list) {
        await applyEdit(root, edit).catch((error: NodeJS.ErrnoException) => {
          if (!impossible.has(error.code ?? '')) throw error;
        });
      }
    });
  }

  async remove(...trees: LayeredTree[]): Promise<void> {
    for (const tree of trees) await this.#engine.remove(dirname(tree.upperDir));
  }
}
