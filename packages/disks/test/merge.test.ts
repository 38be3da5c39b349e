import { chmod, link, lstat, mkdir, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { applyMerge, type LayeredTree, PoolServer, planMerge, UpperWriter } from '@coppice/disks';
import { PlainDirectory } from '@coppice/testkit';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { edits, OverlayBench, type View } from './layered-fixture.ts';
import { poolProgram, run } from './pool-fixture.ts';

let directory: PlainDirectory;
let root: string;
let server: PoolServer;
let bench: OverlayBench;

beforeAll(async () => {
  directory = await PlainDirectory.make('coppice-store-');
  root = directory.path;
  server = new PoolServer({ programPath: poolProgram });
  bench = new OverlayBench(root, server);
  await bench.makeImage();
});
afterAll(async () => {
  await server.close();
  await directory[Symbol.asyncDispose]();
});

const say = async (program: string, args: string[]): Promise<string> => (await run(program, args)).stdout;

const threeTrees = async (): Promise<{ base: LayeredTree; ours: LayeredTree; theirs: LayeredTree }> => {
  const base = await bench.makeTree();
  return { base, ours: await bench.cloneTree(base), theirs: await bench.cloneTree(base) };
};

/** Path by path, knowing nothing of directories. */
const mergeViews = (base: View, ours: View, theirs: View): { merged: View; clashes: string[] } => {
  const merged: View = new Map();
  const clashes: string[] = [];
  for (const path of new Set([...base.keys(), ...ours.keys(), ...theirs.keys()])) {
    const [b, o, t] = [base.get(path), ours.get(path), theirs.get(path)];
    if (o !== b && t !== b && o !== t) clashes.push(`/${path}`);
    const result = t === b ? o : t;
    if (result !== undefined) merged.set(path, result);
  }
  return { merged, clashes };
};

const isTree = (view: View): boolean =>
  [...view.keys()].every((path) => {
    const slash = path.lastIndexOf('/');
    return slash < 0 || (view.get(path.slice(0, slash)) ?? '').startsWith('directory ');
  });

const sorted = (view: View): [string, string][] => [...view].sort(([one], [other]) => (one < other ? -1 : 1));

describe('merging', () => {
  it('does what a path-by-path model does, for any three states, and the kernel shows the result', async () => {
    await fc.assert(
      fc.asyncProperty(edits(5), edits(5), edits(5), async (common, ourEdits, theirEdits) => {
        const base = await bench.makeTree();
        const baseView = await bench.edit(base, common);
        const [ours, theirs] = [await bench.cloneTree(base), await bench.cloneTree(base)];
        const ourView = await bench.edit(ours, ourEdits);
        const theirView = await bench.edit(theirs, theirEdits);
        const plan = await planMerge(server, base, ours, theirs);
        const { merged, clashes } = mergeViews(baseView, ourView, theirView);
        const conflicting = plan.conflicts.map(({ path }) => path);
        expect(conflicting).toEqual(expect.arrayContaining(clashes));
        if (conflicting.length === 0) {
          await applyMerge(server, plan, theirs, new UpperWriter(server, ours));
          expect(sorted(await bench.inside(ours))).toEqual(sorted(merged));
        } else {
          // What is more than a clash of paths must be a clash of directories.
          if (clashes.length === 0) expect(isTree(merged)).toBe(false);
          await expect(applyMerge(server, plan, theirs, new UpperWriter(server, ours))).rejects.toMatchObject(
            {
              code: 'conflict',
            },
          );
          expect(sorted(await bench.inside(ours))).toEqual(sorted(ourView));
          for (const prefer of ['ours', 'theirs'] as const) {
            const target = await bench.cloneTree(ours);
            await applyMerge(server, plan, theirs, new UpperWriter(server, target), { prefer });
            const result = await bench.inside(target);
            const chosen = prefer === 'ours' ? ourView : theirView;
            for (const path of conflicting) expect(result.get(path.slice(1))).toBe(chosen.get(path.slice(1)));
            for (const { path } of plan.changes)
              expect(result.get(path.slice(1))).toBe(theirView.get(path.slice(1)));
            await bench.remove(target);
          }
        }
        await bench.remove(base, ours, theirs);
      }),
      { numRuns: 25, seed: 7 },
    );
  }, 600_000);

  it('brings the files of a fork over and leaves the own ones', async () => {
    const { base, ours, theirs } = await threeTrees();
    await bench.inside(ours, (inside) => writeFile(join(inside, 'mine'), 'ours'));
    await bench.inside(theirs, async (inside) => {
      await writeFile(join(inside, 'a'), 'theirs');
      await chmod(join(inside, 'b'), 0o755);
      await rm(join(inside, 'd', 'x'));
      await mkdir(join(inside, 'n', 'm'), { recursive: true });
      await writeFile(join(inside, 'n', 'm', 'binary'), Buffer.from([0, 255, 1]));
      await symlink('binary', join(inside, 'n', 'm', 'link'));
    });
    const plan = await planMerge(server, base, ours, theirs);
    expect(plan.conflicts).toEqual([]);
    await applyMerge(server, plan, theirs, new UpperWriter(server, ours));
    const view = await bench.inside(ours, async (inside) => {
      expect(await readFile(join(inside, 'n', 'm', 'binary'))).toEqual(Buffer.from([0, 255, 1]));
    });
    expect(view.get('mine')).toContain('ours');
    expect(view.get('a')).toContain('theirs');
    expect(view.get('b')).toBe('file 755 0:0 image b\n');
    expect(view.has('d/x')).toBe(false);
    expect(view.get('n/m/link')).toBe('symlink 0:0 binary');
  });

  it('carries extended attributes, capabilities, access lists, times and names of one file over', async () => {
    const { base, ours, theirs } = await threeTrees();
    const at = new Date('2020-02-03T04:05:06.789Z');
    await bench.inside(theirs, async (inside) => {
      await writeFile(join(inside, 'n'), 'one file, three names');
      await link(join(inside, 'n'), join(inside, 'd', 'n2'));
      await link(join(inside, 'n'), join(inside, 'd', 'n3'));
      await run('setfattr', ['-n', 'user.note', '-v', 'two\nlines', join(inside, 'n')]);
      await utimes(join(inside, 'n'), at, at);
      await run('setfattr', ['-n', 'user.of-image', '-v', 'x', join(inside, 'a')]);
      await run('setfacl', ['-m', 'u:1234:r', join(inside, 'b')]);
      await writeFile(join(inside, 'able'), '');
      await run('setcap', ['cap_net_raw+ep', join(inside, 'able')]);
      await mkdir(join(inside, 'made'));
      await run('setfacl', ['-d', '-m', 'u:1234:rw', join(inside, 'made')]);
      await writeFile(join(inside, 'made', 'inner'), '');
      await utimes(join(inside, 'made'), at, at);
      await chmod(join(inside, 'd', 'e'), 0o2775);
    });
    const plan = await planMerge(server, base, ours, theirs);
    expect(plan.changes.map(({ path, change }) => `${change} ${path}`)).toEqual([
      'mode /a',
      'added /able',
      'mode /b',
      'mode /d/e',
      'added /d/n2',
      'added /d/n3',
      'added /made',
      'added /made/inner',
      'added /n',
    ]);
    await applyMerge(server, plan, theirs, new UpperWriter(server, ours));
    await bench.inside(ours, async (inside) => {
      const [n, n2, n3] = await Promise.all(['n', 'd/n2', 'd/n3'].map((name) => lstat(join(inside, name))));
      expect(new Set([n!.ino, n2!.ino, n3!.ino]).size).toBe(1);
      expect(n!.nlink).toBe(3);
      expect(n!.mtime).toEqual(at);
      expect((await lstat(join(inside, 'made'))).mtime).toEqual(at);
      expect((await lstat(join(inside, 'd', 'e'))).mode & 0o7777).toBe(0o2775);
      const value = (name: string, file: string) =>
        say('getfattr', ['--only-values', '--absolute-names', '-n', name, join(inside, file)]);
      expect(await value('user.note', 'n')).toBe('two\nlines');
      expect(await value('user.of-image', 'a')).toBe('x');
      expect(await say('getcap', [join(inside, 'able')])).toContain('cap_net_raw=ep');
      expect(await say('getfacl', ['-cp', join(inside, 'b')])).toContain('user:1234:r--');
      expect(await say('getfacl', ['-cp', join(inside, 'made')])).toContain('default:user:1234:rw-');
    });
    expect((await planMerge(server, base, ours, theirs)).changes).toEqual([]);
  });

  it('takes extended attributes away that theirs took away', async () => {
    const base = await bench.makeTree();
    await bench.inside(base, async (inside) => {
      await writeFile(join(inside, 'n'), '');
      await run('setfattr', ['-n', 'user.gone', '-v', 'x', join(inside, 'n')]);
    });
    const [ours, theirs] = [await bench.cloneTree(base), await bench.cloneTree(base)];
    await bench.inside(theirs, async (inside) => {
      await run('setfattr', ['-x', 'user.gone', join(inside, 'n')]);
    });
    const plan = await planMerge(server, base, ours, theirs);
    expect(plan.changes.map(({ path, change }) => `${change} ${path}`)).toEqual(['mode /n']);
    await applyMerge(server, plan, theirs, new UpperWriter(server, ours));
    await bench.inside(ours, async (inside) => {
      expect(await say('getfattr', ['-d', '--absolute-names', join(inside, 'n')])).toBe('');
    });
  });

  it('finds no conflict where both sides did the same', async () => {
    const { base, ours, theirs } = await threeTrees();
    for (const tree of [ours, theirs]) {
      await bench.inside(tree, async (inside) => {
        await writeFile(join(inside, 'a'), 'same');
        await rm(join(inside, 'd'), { recursive: true });
        await mkdir(join(inside, 'n'));
      });
    }
    expect(await planMerge(server, base, ours, theirs)).toMatchObject({
      changes: [],
      conflicts: [],
      skipped: [],
    });
  });

  it('calls it a conflict when one side removed a directory that the other wrote in', async () => {
    const { base, ours, theirs } = await threeTrees();
    await bench.inside(ours, (inside) => rm(join(inside, 'd'), { recursive: true }));
    await bench.inside(theirs, (inside) => writeFile(join(inside, 'd', 'new'), 'x'));
    expect((await planMerge(server, base, ours, theirs)).conflicts).toEqual([
      { path: '/d/new', ours: 'removed', theirs: 'added' },
    ]);
    expect((await planMerge(server, base, theirs, ours)).conflicts).toEqual([
      { path: '/d', ours: 'modified', theirs: 'removed' },
    ]);
  });

  it('lists the conflicting paths and writes nothing without a chosen side', async () => {
    const { base, ours, theirs } = await threeTrees();
    await bench.inside(ours, (inside) => writeFile(join(inside, 'a'), 'ours'));
    await bench.inside(theirs, async (inside) => {
      await writeFile(join(inside, 'a'), 'theirs');
      await writeFile(join(inside, 'clean'), 'theirs');
    });
    const plan = await planMerge(server, base, ours, theirs);
    await expect(applyMerge(server, plan, theirs, new UpperWriter(server, ours))).rejects.toMatchObject({
      code: 'conflict',
      details: { conflicts: [{ path: '/a', ours: 'modified', theirs: 'modified' }] },
    });
    expect((await bench.inside(ours)).has('clean')).toBe(false);
  });

  it('carries no sockets over, and says so', async () => {
    const { base, ours, theirs } = await threeTrees();
    const listener = createServer();
    await new Promise<void>((ready) => listener.listen(join(theirs.upperDir, 's'), ready));
    try {
      const plan = await planMerge(server, base, ours, theirs);
      expect(plan).toMatchObject({ changes: [], conflicts: [], skipped: ['/s'] });
    } finally {
      await new Promise((closed) => listener.close(closed));
    }
  });

  it('does not write through a link that a sandbox left in the way', async () => {
    const { base, ours, theirs } = await threeTrees();
    const outside = join(root, 'outside');
    await mkdir(outside, { recursive: true });
    await bench.inside(theirs, async (inside) => {
      await mkdir(join(inside, 'n'));
      await writeFile(join(inside, 'n', 'file'), 'theirs');
    });
    await symlink(outside, join(ours.upperDir, 'n'));
    const plan = await planMerge(server, base, ours, theirs);
    expect(plan.conflicts.map(({ path }) => path)).toEqual(['/n', '/n/file']);
    const writer = new UpperWriter(server, ours);
    await expect(writer.remove('/n/file')).resolves.toBeUndefined();
    await applyMerge(server, plan, theirs, writer, { prefer: 'theirs' });
    await expect(readFile(join(outside, 'file'))).rejects.toMatchObject({ code: 'ENOENT' });
    expect((await bench.inside(ours)).get('n/file')).toContain('theirs');
  });
});
