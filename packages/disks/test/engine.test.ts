import { mkdir, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { BtrfsEngine, CopyingEngine, PoolServer, type TreeEngine } from '@coppice/disks';
import {
  fillWithOddities,
  type MountableKind,
  skipFor,
  treeListing,
  whyNotMountable,
} from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeTemporaryDirectory, poolProgram, removeDirectory, run } from './pool-fixture.ts';

const filesystems = {
  btrfs: {
    make: ['mkfs.btrfs', '-q'],
    engine: (server: PoolServer) => new BtrfsEngine(server, { quotas: false }),
  },
  xfs: { make: ['mkfs.xfs', '-q'], engine: (server: PoolServer) => new CopyingEngine(server, 'reflink') },
  ext4: {
    make: ['mkfs.ext4', '-q', '-F'],
    engine: (server: PoolServer) => new CopyingEngine(server, 'copy'),
  },
} as const;

const describeEngine = (type: MountableKind): void => {
  const { make, engine: makeEngine } = filesystems[type];

  let home: string;
  let root: string;
  let server: PoolServer;
  let engine: TreeEngine;

  beforeAll(async () => {
    home = await makeTemporaryDirectory();
    root = join(home, 'mounted');
    const image = join(home, 'image');
    await writeFile(image, '');
    await truncate(image, 512 * 1024 ** 2);
    await run(make[0], [...make.slice(1), image]);
    await mkdir(root);
    server = new PoolServer({ programPath: poolProgram });
    await server.call('mount-image', image, root, type, '');
    engine = makeEngine(server);
  });
  afterAll(async () => {
    await server?.call('unmount', root);
    await server?.close();
    await removeDirectory(home);
  });

  it('knows by probing that it fits', async () => {
    expect(await engine.probe(root)).toBe(true);
    const fits = await Promise.all([
      new BtrfsEngine(server, { quotas: false }).probe(root),
      new CopyingEngine(server, 'reflink').probe(root),
      new CopyingEngine(server, 'copy').probe(root),
    ]);
    expect(fits).toEqual([type === 'btrfs', type !== 'ext4', true]);
  });

  it('clones a tree with everything that a careless copy loses', async () => {
    const [source, target] = [join(root, 'source'), join(root, 'target')];
    await engine.create(source);
    await fillWithOddities(source);
    await engine.clone(source, target, { readOnly: false });
    expect(await treeListing(target)).toBe(await treeListing(source));
    const sparse = await stat(join(target, 'sparse'));
    expect(sparse.blocks * 512).toBeLessThan(sparse.size / 4);
    await writeFile(join(target, 'plain'), 'changed');
    expect(await readFile(join(source, 'plain'), 'utf8')).toBe('text\n');
  });

  it('refuses to clone onto something, and what stands there stays', async () => {
    const [source, target] = [join(root, 'one'), join(root, 'two')];
    await engine.create(source);
    await engine.create(target);
    await writeFile(join(target, 'file'), 'mine');
    await expect(engine.clone(source, target, { readOnly: false })).rejects.toMatchObject({
      code: 'name_taken',
    });
    expect(await readFile(join(target, 'file'), 'utf8')).toBe('mine');
  });

  it('does not follow a symbolic link in the place of a tree', async () => {
    const outside = join(home, `outside-${type}`);
    await mkdir(outside);
    await writeFile(join(outside, 'file'), 'safe');
    await run('ln', ['-s', outside, join(root, 'sly')]);
    await expect(
      engine.clone(join(root, 'sly'), join(root, 'stolen'), { readOnly: false }),
    ).rejects.toThrowError();
    await engine.remove(join(root, 'sly'));
    expect(await readdir(outside)).toEqual(['file']);
    expect(await readdir(root)).not.toContain('stolen');
  });

  it('removes a tree with read-only parts, and one that is not there', async () => {
    const [source, target] = [join(root, 'first'), join(root, 'second')];
    await engine.create(source);
    await fillWithOddities(source);
    await engine.clone(source, target, { readOnly: true });
    await engine.remove(target);
    await engine.remove(target);
    expect(await readdir(root)).not.toContain('second');
  });

  it('measures what is held and what is held alone', async () => {
    const [source, target] = [join(root, 'weighed'), join(root, 'weighed-again')];
    await engine.create(source);
    await run('dd', [
      'if=/dev/urandom',
      `of=${join(source, 'data')}`,
      'bs=1M',
      'count=8',
      'conv=fsync',
      'status=none',
    ]);
    await engine.clone(source, target, { readOnly: false });
    await server.call('filesystem-sync', root);
    const { referencedBytes, usedBytes } = await engine.usage(target);
    expect(referencedBytes).toBeGreaterThanOrEqual(8 * 1024 ** 2);
    if (type === 'ext4') expect(usedBytes).toBe(referencedBytes);
    else expect(usedBytes).toBeLessThan(1024 ** 2);
  });
};

for (const type of ['btrfs', 'xfs', 'ext4'] as const)
  describe(`an engine on ${type}`, skipFor(whyNotMountable(type)), () => describeEngine(type));
