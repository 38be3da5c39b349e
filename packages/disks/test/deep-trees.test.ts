import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  applyMerge,
  CopyingEngine,
  diffTrees,
  type LayeredTree,
  PoolServer,
  planMerge,
  UpperWriter,
} from '@coppice/disks';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { makeTemporaryDirectory, poolProgram, run } from './pool-fixture.ts';

/** Walks down from its directory, as no path that the kernel takes leads there. */
const python = (directory: string, script: string): Promise<{ stdout: string }> =>
  run('python3', ['-c', script], { cwd: directory });

const dig = (levels: number, name: string): string =>
  `import os\nfor level in range(${levels}):\n  os.mkdir('${name}')\n  os.chdir('${name}')\n`;
const descend = (levels: number, name: string): string =>
  `import os\nfor level in range(${levels}): os.chdir('${name}')\n`;

let root: string;
let server: PoolServer;

beforeAll(async () => {
  root = await makeTemporaryDirectory();
  server = new PoolServer({ programPath: poolProgram });
});
afterAll(async () => {
  await server.close();
  await run('rm', ['-rf', root]);
});

describe('directories in directories, 5,000 of them', () => {
  const levels = 5000;
  const engine = () => new CopyingEngine(server, 'copy');

  beforeAll(async () => {
    await mkdir(join(root, 'deep'));
    await python(
      join(root, 'deep'),
      `${dig(levels, 'd')}open('file', 'w').write('found')\nos.link('file', 'again')\n`,
    );
  });

  it('are measured, copied with the names of one file, and removed', async () => {
    const [source, target] = [join(root, 'deep'), join(root, 'copy')];
    const { referencedBytes } = await engine().usage(source);
    await engine().clone(source, target, { readOnly: false });
    const look = `${descend(levels, 'd')}print(open('again').read(), os.stat('file').st_nlink)`;
    expect((await python(target, look)).stdout).toBe('found 2\n');
    expect((await engine().usage(target)).referencedBytes).toBe(referencedBytes);
    await engine().remove(target);
    await expect(python(target, '')).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('a path of more than 4,096 bytes', () => {
  const levels = 30;
  const name = 'n'.repeat(200);
  const path = `/${Array.from({ length: levels }, () => name).join('/')}/file`;
  let base: LayeredTree;
  let ours: LayeredTree;
  let theirs: LayeredTree;

  const makeTree = async (tree: string, content: string | undefined): Promise<LayeredTree> => {
    const disk = join(root, tree);
    await server.call('remove', root, tree);
    await mkdir(join(disk, 'upper'), { recursive: true });
    await mkdir(join(root, 'image'), { recursive: true });
    if (content !== undefined)
      await python(join(disk, 'upper'), `${dig(levels, name)}open('file', 'w').write('${content}')`);
    return { imageDirs: [join(root, 'image')], upperDir: join(disk, 'upper') };
  };

  const read = async (tree: LayeredTree): Promise<string> =>
    (await python(tree.upperDir, `${descend(levels, name)}print(open('file').read(), end='')`)).stdout;

  const changes = async (before: LayeredTree, after: LayeredTree): Promise<string[]> => {
    const found: string[] = [];
    for await (const { path, change, kind } of diffTrees(server, before, after))
      if (kind === 'file') found.push(`${change} ${path}`);
    return found;
  };

  beforeEach(async () => {
    base = await makeTree('base', 'old');
    ours = await makeTree('ours', 'old');
    theirs = await makeTree('theirs', 'new');
  });

  it('is compared', async () => {
    expect(await changes(ours, theirs)).toEqual([`modified ${path}`]);
    expect(await changes(await makeTree('nothing', undefined), theirs)).toEqual([`added ${path}`]);
  });

  it('is merged: changed, added and removed', async () => {
    const merge = async (from: LayeredTree, into: LayeredTree, to: LayeredTree): Promise<void> => {
      const plan = await planMerge(server, from, into, to);
      await applyMerge(server, plan, to, new UpperWriter(server, into));
    };
    await merge(base, ours, theirs);
    expect(await read(ours)).toBe('new');
    const empty = await makeTree('empty', undefined);
    const nothing = await makeTree('nothing', undefined);
    await merge(nothing, empty, theirs);
    expect(await read(empty)).toBe('new');
    await merge(theirs, empty, nothing);
    expect(await changes(nothing, empty)).toEqual([]);
  });
});

describe('a path that is longer than any program needs', () => {
  it('is refused with a reason, and the helper goes on', async () => {
    const [image, upper] = [join(root, 'abyss-image'), join(root, 'abyss')];
    await mkdir(image);
    await mkdir(upper);
    await python(upper, dig(1500, 'n'.repeat(255)));
    const below = async (): Promise<void> => {
      for await (const _ of diffTrees(
        server,
        { imageDirs: [image], upperDir: image },
        { imageDirs: [image], upperDir: upper },
      ));
    };
    await expect(below()).rejects.toMatchObject({
      code: 'unsupported',
      hint: expect.stringContaining('/nnn'),
    });
    await expect(server.call('look', upper, 'n'.repeat(2 ** 20))).rejects.toMatchObject({
      code: 'too_large',
    });
    expect(await server.call('look', upper, '')).toHaveLength(1);
  });
});
