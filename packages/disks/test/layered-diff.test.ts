import { chmod, mkdir, rename, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import {
  diffTrees,
  type LayeredTree,
  PoolServer,
  readTreeFile,
  TextDiffer,
  type TreeChange,
  unifiedDiff,
} from '@coppice/disks';
import { PlainDirectory } from '@coppice/testkit';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { edits, OverlayBench, type View } from './layered-fixture.ts';
import { poolProgram, run } from './pool-fixture.ts';

let directory: PlainDirectory;
let root: string;
let server: PoolServer;
let bench: OverlayBench;
let tools: { server: PoolServer; differ: TextDiffer };

beforeAll(async () => {
  directory = await PlainDirectory.make('coppice-store-');
  root = directory.path;
  server = new PoolServer({ programPath: poolProgram });
  tools = { server, differ: new TextDiffer() };
  bench = new OverlayBench(root, server);
  await bench.makeImage();
});
afterAll(async () => {
  await server.close();
  await directory[Symbol.asyncDispose]();
});

const diff = async (before: LayeredTree, after: LayeredTree): Promise<TreeChange[]> => {
  const changes: TreeChange[] = [];
  for await (const change of diffTrees(server, before, after)) changes.push(change);
  return changes;
};

const brief = (changes: TreeChange[]): string[] =>
  changes.map(({ path, change, kind }) => `${change} ${kind} ${path}`);

const contentOf = (line: string): string =>
  line.replace(/^(file|directory) \d+ \d+:\d+|^symlink \d+:\d+/, '$1');

/** The plain way: look at every path of both sides. */
const expected = (before: View, after: View): string[] => {
  const found: string[] = [];
  for (const path of [...new Set([...before.keys(), ...after.keys()])]) {
    const [one, other] = [before.get(path), after.get(path)];
    const kind = (other ?? one)!.split(' ')[0];
    if (one === other) continue;
    if (one === undefined) found.push(`added ${kind} /${path}`);
    else if (other === undefined) found.push(`removed ${kind} /${path}`);
    else if (contentOf(one) !== contentOf(other)) found.push(`modified ${kind} /${path}`);
    else found.push(`mode ${kind} /${path}`);
  }
  return found.sort();
};

describe('the difference of two trees', () => {
  it('is what looking at every path of two mounted overlays finds, for any two states', async () => {
    await fc.assert(
      fc.asyncProperty(edits(8), edits(8), edits(8), async (common, one, other) => {
        const base = await bench.makeTree();
        await bench.edit(base, common);
        const [before, after] = [await bench.cloneTree(base), await bench.cloneTree(base)];
        const views = [await bench.edit(before, one), await bench.edit(after, other)] as const;
        expect(brief(await diff(before, after)).sort()).toEqual(expected(views[0], views[1]));
        expect(brief(await diff(after, before)).sort()).toEqual(expected(views[1], views[0]));
        expect(await diff(after, await bench.cloneTree(after))).toEqual([]);
        await bench.remove(base, before, after);
      }),
      { numRuns: 20, seed: 7 },
    );
  }, 600_000);

  it('names parents before what is in them, with sizes and modes of both sides', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await writeFile(join(inside, 'a'), 'longer than before\n');
      await chmod(join(inside, 'b'), 0o600);
      await mkdir(join(inside, 'n'));
      await writeFile(join(inside, 'n', 'file'), 'x');
      await rm(join(inside, 'd'), { recursive: true });
    });
    const file = { kind: 'file', modeBefore: 0o644, modeAfter: 0o644 };
    const changes = await diff(before, after);
    expect(brief(changes)).toEqual([
      'modified file /a',
      'mode file /b',
      'removed directory /d',
      'removed directory /d/e',
      'removed file /d/e/z',
      'removed file /d/x',
      'removed file /d/y',
      'added directory /n',
      'added file /n/file',
    ]);
    expect(changes[0]).toEqual({ ...file, path: '/a', change: 'modified', sizeBefore: 8, sizeAfter: 19 });
    expect(changes[1]).toMatchObject({ modeBefore: 0o644, modeAfter: 0o600, sizeBefore: 8, sizeAfter: 8 });
    expect(changes.at(-1)).toMatchObject({ sizeBefore: null, sizeAfter: 1, modeBefore: null });
  });

  it('does not take a touched or rewritten file for a change', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await utimes(join(inside, 'a'), 1, 1);
      await writeFile(join(inside, 'b'), 'image b\n');
    });
    expect(await diff(before, after)).toEqual([]);
  });

  it('sees a change of content that keeps size and time', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    for (const [tree, text] of [
      [before, 'one'],
      [after, 'two'],
    ] as const) {
      await bench.inside(tree, async (inside) => {
        await writeFile(join(inside, 'same'), text);
        await utimes(join(inside, 'same'), 1, 1);
      });
    }
    expect(brief(await diff(before, after))).toEqual(['modified file /same']);
  });

  it('sees through a directory that was replaced by another of the same name', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await rm(join(inside, 'd'), { recursive: true });
      await mkdir(join(inside, 'd'));
      await writeFile(join(inside, 'd', 'x'), 'image d/x\n');
    });
    expect(brief(await diff(before, after))).toEqual([
      'removed directory /d/e',
      'removed file /d/e/z',
      'removed file /d/y',
    ]);
  });

  it('can be asked for what is below a directory alone, for one file, and through a link on the way', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await writeFile(join(inside, 'a'), 'other\n');
      await writeFile(join(inside, 'd', 'x'), 'other\n');
      await rm(join(inside, 'd', 'e'), { recursive: true });
      await symlink('d', join(inside, 'way'));
    });
    const below = async (path: string): Promise<string[]> => {
      const changes: TreeChange[] = [];
      for await (const change of diffTrees(server, before, after, { path })) changes.push(change);
      return brief(changes);
    };
    const inD = ['removed directory /d/e', 'removed file /d/e/z', 'modified file /d/x'];
    expect(await below('/d')).toEqual(inD);
    expect(await below('/d/')).toEqual(inD);
    expect(await below('/d/e')).toEqual(inD.slice(0, 2));
    expect(await below('/way/x')).toEqual(['modified file /d/x']);
    expect(await below('/b')).toEqual([]);
    expect(await below('/')).toEqual(['modified file /a', ...inD, 'added symlink /way']);
    await expect(below('/nowhere')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('keeps names that are not UTF-8 apart', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    const odd = (byte: number): Buffer =>
      Buffer.concat([Buffer.from(join(after.upperDir, 'odd')), Buffer.from([byte])]);
    await writeFile(odd(0xff), 'x');
    await writeFile(odd(0xfe), 'y');
    await writeFile(join(after.upperDir, 'ünï'), 'z');
    const found = await diff(before, after);
    expect(found.map((change) => change.path).sort()).toEqual(['/odd\udcfe', '/odd\udcff', '/ünï']);
    expect((await readTreeFile(server, after, '/odd\udcfe', { maxBytes: 10 })).toString()).toBe('y');
  });

  it('compares huge sparse files without reading their holes', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    for (const tree of [before, after]) {
      await writeFile(join(tree.upperDir, 'huge'), tree === before ? 'x' : 'y');
      await truncate(join(tree.upperDir, 'huge'), 8 * 1024 ** 4);
    }
    expect(brief(await diff(before, after))).toEqual(['modified file /huge']);
    await writeFile(join(after.upperDir, 'huge'), 'x');
    await truncate(join(after.upperDir, 'huge'), 8 * 1024 ** 4);
    expect(await diff(before, after)).toEqual([]);
  });

  it('lists sockets and FIFOs and opens none of them', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await run('mkfifo', [join(after.upperDir, 'pipe')]);
    const listener = createServer();
    await new Promise<void>((ready) => listener.listen(join(after.upperDir, 's'), ready));
    try {
      expect(brief(await diff(before, after)).sort()).toEqual(['added fifo /pipe', 'added socket /s']);
      await expect(readTreeFile(server, after, '/pipe', { maxBytes: 10 })).rejects.toMatchObject({
        code: 'invalid_argument',
      });
    } finally {
      await new Promise((closed) => listener.close(closed));
    }
  });

  it('understands directories that the kernel marked opaque as root', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await mkdir(join(after.upperDir, 'd'));
    await run('setfattr', ['-n', 'trusted.overlay.opaque', '-v', 'y', join(after.upperDir, 'd')]);
    expect(brief(await diff(before, after))).toContain('removed file /d/x');
  });

  it('stops when it is cancelled', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    const reason = new Error('nobody waits any more');
    const changes = diffTrees(server, before, after, { signal: AbortSignal.abort(reason) });
    await expect(changes.next()).rejects.toBe(reason);
  });
});

describe('reading a file of a tree', () => {
  it('follows links inside the tree as the sandbox would', async () => {
    const tree = await bench.makeTree();
    await bench.inside(tree, async (inside) => {
      await symlink('/d', join(inside, 'absolute'));
      await symlink('../../d/x', join(inside, 'd', 'climbing'));
      await rename(join(inside, 'a'), join(inside, 'moved'));
    });
    const read = async (path: string) =>
      (await readTreeFile(server, tree, path, { maxBytes: 100 })).toString();
    expect(await read('/absolute/x')).toBe('image d/x\n');
    expect(await read('/d/climbing')).toBe('image d/x\n');
    expect(await read('/../../d/e/../x')).toBe('image d/x\n');
    expect(await read('/moved')).toBe('image a\n');
    await expect(read('/l')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('never leaves the tree, whatever its links say', async () => {
    const tree = await bench.makeTree();
    await writeFile(join(root, 'host-secret'), 'secret');
    await symlink('/etc/shadow', join(tree.upperDir, 'shadow'));
    await symlink('/etc', join(tree.upperDir, 'etc-of-host'));
    await symlink(join('..', '..', 'host-secret'), join(tree.upperDir, 'climb'));
    await symlink('loop', join(tree.upperDir, 'loop'));
    for (const path of [
      '/shadow',
      '/etc-of-host/shadow',
      '/climb',
      '/../host-secret',
      '/../../host-secret',
    ]) {
      await expect(readTreeFile(server, tree, path, { maxBytes: 1e6 })).rejects.toMatchObject({
        code: 'not_found',
      });
    }
    await expect(readTreeFile(server, tree, '/loop', { maxBytes: 1 })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('does not follow a link that takes the place of a directory while it is read', async () => {
    const tree = await bench.makeTree();
    const outside = join(root, 'outside');
    await mkdir(outside, { recursive: true });
    await writeFile(join(outside, 'file'), 'secret');
    await mkdir(join(tree.upperDir, 'dir'));
    await writeFile(join(tree.upperDir, 'dir', 'file'), 'public');
    let swapping = true;
    const swap = (async () => {
      while (swapping) {
        await rename(join(tree.upperDir, 'dir'), join(tree.upperDir, 'aside'));
        await symlink(outside, join(tree.upperDir, 'dir'));
        await rm(join(tree.upperDir, 'dir'));
        await rename(join(tree.upperDir, 'aside'), join(tree.upperDir, 'dir'));
      }
    })();
    try {
      for (let attempt = 0; attempt < 300; attempt++) {
        const text = await readTreeFile(server, tree, '/dir/file', { maxBytes: 100 }).then(
          String,
          () => 'refused',
        );
        expect(text).not.toBe('secret');
      }
    } finally {
      swapping = false;
      await swap;
    }
  });

  it('refuses more than the bound', async () => {
    const tree = await bench.makeTree();
    await expect(readTreeFile(server, tree, '/a', { maxBytes: 3 })).rejects.toMatchObject({
      code: 'too_large',
    });
  });
});

describe('the difference of one file', () => {
  it('is shown in the form of diff -u', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, (inside) => writeFile(join(inside, 'a'), 'image a\nmore\n'));
    const { result, text } = await unifiedDiff(tools, before, after, '/a');
    expect(result).toBe('text');
    expect(text).toBe('--- a/a\n+++ b/a\n@@ -1,1 +1,2 @@\n image a\n+more\n');
  });

  it('shows a new file against nothing, a removed one likewise, and a link by its target', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await writeFile(join(inside, 'new'), 'line\n');
      await rm(join(inside, 'b'));
      await rm(join(inside, 'l'));
      await symlink('b', join(inside, 'l'));
    });
    expect((await unifiedDiff(tools, before, after, '/new')).text).toContain('--- /dev/null\n+++ b/new\n');
    expect((await unifiedDiff(tools, before, after, '/b')).text).toContain(
      '+++ /dev/null\n@@ -1,1 +0,0 @@\n-image b\n',
    );
    expect((await unifiedDiff(tools, before, after, '/l')).text).toContain('-a\n');
  });

  it('says when there is none, when it is binary and when it is too large', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await bench.inside(after, async (inside) => {
      await writeFile(join(inside, 'binary'), Buffer.from([1, 0, 2]));
      await writeFile(join(inside, 'large'), 'x'.repeat(3 * 1024 ** 2));
    });
    expect(await unifiedDiff(tools, before, after, '/a')).toEqual({ result: 'none', text: '' });
    expect(await unifiedDiff(tools, before, after, '/binary')).toEqual({ result: 'binary', text: '' });
    expect(await unifiedDiff(tools, before, after, '/large')).toEqual({ result: 'too_large', text: '' });
    expect(await unifiedDiff(tools, before, after, '/d')).toEqual({ result: 'directory', text: '' });
    await expect(unifiedDiff(tools, before, after, '/absent')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('shows what changed in a link to a file of the host as the link it is', async () => {
    const [before, after] = [await bench.makeTree(), await bench.makeTree()];
    await symlink('/etc/shadow', join(after.upperDir, 'leak'));
    const { text } = await unifiedDiff(tools, before, after, '/leak');
    expect(text).toContain('+/etc/shadow');
    expect(text).not.toContain('root:');
  });
});
