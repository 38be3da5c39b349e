import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CopyingEngine, createDiskStore, type DiskStore, openPool, type Pool } from '@coppice/disks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeTemporaryDirectory, poolProgram, removeDirectory, run } from './pool-fixture.ts';

const mebibyte = 1024 ** 2;

describe('the size of a disk', () => {
  let home: string;
  let pool: Pool;
  let store: DiskStore;
  const file = (diskId: string, name: string): string => join(store.diskDir(diskId), 'upper', name);
  const write = (diskId: string, name: string, sizeMiB: number): Promise<void> =>
    run(
      'dd',
      [
        'if=/dev/urandom',
        `of=${file(diskId, name)}`,
        'bs=1M',
        `count=${sizeMiB}`,
        'conv=fsync',
        'status=none',
      ],
      {
        env: { ...process.env, LC_ALL: 'C' },
      },
    ).then(() => undefined);
  const exceeded = expect.objectContaining({ stderr: expect.stringContaining('Disk quota exceeded') });

  beforeAll(async () => {
    home = await makeTemporaryDirectory();
    pool = await openPool({ home, programPath: poolProgram, sizeBytes: 2048 * mebibyte });
    store = await createDiskStore({ server: pool.server, engine: pool.engine, directory: pool.directory });
  });
  afterAll(async () => {
    await store?.close();
    await pool?.purge();
    await removeDirectory(home);
  });

  it('cannot be exceeded, and deleting makes room again', async () => {
    await store.createDisk('full', 32 * mebibyte);
    await expect(write('full', 'big', 40)).rejects.toEqual(exceeded);
    await rm(file('full', 'big'));
    await store.diskUsage('full');
    await write('full', 'fits', 20);
  });

  it('does not keep a full disk from being snapshotted, restored and forked', async () => {
    await store.createDisk('stuffed', 16 * mebibyte);
    await write('stuffed', 'small', 1);
    await store.snapshotDisk('stuffed', 'before_stuffed');
    await expect(write('stuffed', 'big', 20)).rejects.toEqual(exceeded);
    await store.snapshotDisk('stuffed', 'stuffed_snapshot');
    await store.cloneDisk('stuffed_snapshot', 'stuffed_fork', 32 * mebibyte);
    await store.replaceDisk('stuffed', 'before_stuffed', 16 * mebibyte);
    await write('stuffed', 'fits', 8);
  });

  it('does not bother other disks when one is full', async () => {
    await store.createDisk('greedy', 16 * mebibyte);
    await store.createDisk('modest', 64 * mebibyte);
    await expect(write('greedy', 'big', 20)).rejects.toEqual(exceeded);
    await write('modest', 'file', 20);
  });

  it('stays known for what snapshots of a disk hold, each byte once, however often the disk is restored', async () => {
    const held = async (): Promise<number> => {
      // Brings the counts up to date.
      await store.diskUsage('restored');
      return Math.round((await store.writtenBytes('restored', [])) / mebibyte);
    };
    await store.createDisk('restored', 64 * mebibyte);
    await write('restored', 'first', 8);
    await store.snapshotDisk('restored', 'restored_1');
    await store.snapshotDisk('restored', 'restored_same');
    expect(await held()).toBe(8);
    for (const round of [2, 3, 4]) {
      await write('restored', `round-${round}`, 8);
      await store.snapshotDisk('restored', `restored_${round}`);
      await store.replaceDisk('restored', 'restored_1', 64 * mebibyte);
      expect(await held()).toBe(8 * round);
    }
    // A daemon that starts anew knows it too.
    await store.close();
    store = await createDiskStore({ server: pool.server, engine: pool.engine, directory: pool.directory });
    expect(await held()).toBe(32);
    for (const round of [2, 3, 4]) await store.removeSnapshot(`restored_${round}`);
    while ((await held()) > 8) await new Promise((resolve) => setTimeout(resolve, 50));
    // The disk and two snapshots share it still.
    expect(await held()).toBe(8);
    await store.removeDisk('restored');
  });

  it('counts what a disk began with: a snapshot, a fork and a restore do not start at zero', async () => {
    await store.createDisk('source', 32 * mebibyte);
    await write('source', 'base', 20);
    await store.snapshotDisk('source', 'snapshot');
    await expect(write('source', 'more', 20)).rejects.toEqual(exceeded);
    await store.cloneDisk('snapshot', 'fork', 32 * mebibyte);
    await expect(write('fork', 'more', 20)).rejects.toEqual(exceeded);
    await store.replaceDisk('source', 'snapshot', 32 * mebibyte);
    await expect(write('source', 'more', 20)).rejects.toEqual(exceeded);
    await rm(file('source', 'more'));
    await write('source', 'fits', 8);
  });

  it('gives back what was deleted although a snapshot keeps it, when limits are reviewed', async () => {
    await store.createDisk('rewriter', 32 * mebibyte);
    for (let round = 0; round < 4; round++) {
      await write('rewriter', 'data', 20);
      await store.snapshotDisk('rewriter', `round_${round}`);
      await rm(file('rewriter', 'data'));
      await store.reviewLimits();
    }
    const { referencedBytes } = await store.diskUsage('rewriter');
    expect(referencedBytes).toBeLessThan(4 * mebibyte);
    await expect(write('rewriter', 'data', 40)).rejects.toEqual(exceeded);
  });

  it('can be raised and lowered, not below what the disk holds', async () => {
    await store.createDisk('resized', 16 * mebibyte);
    await expect(write('resized', 'data', 20)).rejects.toEqual(exceeded);
    await store.resizeDisk('resized', 64 * mebibyte);
    await write('resized', 'data', 20);
    await expect(store.resizeDisk('resized', 8 * mebibyte)).rejects.toMatchObject({ code: 'no_space' });
    await store.resizeDisk('resized', 32 * mebibyte);
    await expect(write('resized', 'more', 20)).rejects.toEqual(exceeded);
  });

  it('must hold the snapshot that it grows from', async () => {
    await store.createDisk('large', 64 * mebibyte);
    await write('large', 'data', 20);
    await store.snapshotDisk('large', 'large_snapshot');
    await expect(store.cloneDisk('large_snapshot', 'tight', 16 * mebibyte)).rejects.toMatchObject({
      code: 'no_space',
    });
    expect((await store.list()).disks).not.toContain('tight');
  });

  it('is known again when the account of a snapshot was lost', async () => {
    await store.createDisk('lost', 64 * mebibyte);
    await write('lost', 'data', 20);
    await store.snapshotDisk('lost', 'lost_snapshot');
    await rm(join(pool.directory, 'accounts', 'snapshot.lost_snapshot.json'));
    const { server, engine, directory } = pool;
    const nextStore = await createDiskStore({ server, engine, directory });
    const { referencedBytes } = await nextStore.snapshotUsage('lost_snapshot');
    expect(referencedBytes).toBeGreaterThanOrEqual(20 * mebibyte);
    expect(referencedBytes).toBeLessThan(24 * mebibyte);
  });

  it('and what was counted are known to the next store on the same pool', async () => {
    await store.createDisk('lasting', 64 * mebibyte);
    await write('lasting', 'first', 8);
    await store.snapshotDisk('lasting', 'lasting_first');
    await write('lasting', 'second', 4);
    const { server, engine, directory } = pool;
    const nextStore = await createDiskStore({ server, engine, directory });
    expect(await nextStore.diskUsage('lasting')).toEqual(await store.diskUsage('lasting'));
    expect(await nextStore.snapshotUsage('lasting_first')).toEqual(
      await store.snapshotUsage('lasting_first'),
    );
    await nextStore.snapshotDisk('lasting', 'lasting_second');
    const { usedBytes } = await nextStore.snapshotUsage('lasting_second');
    // What the first snapshot has is not counted again.
    expect(usedBytes).toBeGreaterThanOrEqual(4 * mebibyte);
    expect(usedBytes).toBeLessThan(6 * mebibyte);
  });

  it('is refused where it cannot be enforced, unless told that it need not be', async () => {
    const directory = join(home, 'plain');
    const engine = new CopyingEngine(pool.server, 'copy');
    const strict = await createDiskStore({ server: pool.server, engine, directory });
    await expect(strict.createDisk('disk', mebibyte)).rejects.toMatchObject({ code: 'unsupported' });
    const lenient = await createDiskStore({ server: pool.server, engine, directory, enforceSize: false });
    await lenient.createDisk('disk', mebibyte);
  });

  it('leaves no account of disks and snapshots that are gone', async () => {
    await store.createDisk('passing', 16 * mebibyte);
    await store.snapshotDisk('passing', 'passing_snapshot');
    await store.replaceDisk('passing', 'passing_snapshot', 16 * mebibyte);
    await store.close();
    const known = await readdir(join(pool.directory, 'accounts'));
    await store.removeSnapshot('passing_snapshot');
    await store.removeDisk('passing');
    await store.close();
    const left = await readdir(join(pool.directory, 'accounts'));
    expect(known.filter((name) => !left.includes(name))).toHaveLength(3);
    const { disks, snapshots } = await store.list();
    const former = left.filter((name) => name.startsWith('former.'));
    expect(left).toHaveLength(disks.length + snapshots.length + former.length);
    expect(disks.map((id) => `former.${id}.json`)).toEqual(expect.arrayContaining(former));
  });

  it('leaves a snapshot that nobody can write to, not even root', async () => {
    await store.createDisk('origin', 16 * mebibyte);
    await writeFile(file('origin', 'file'), 'fixed');
    await store.snapshotDisk('origin', 'fixed');
    const inside = join(store.snapshotDir('fixed'), 'upper', 'file');
    await expect(writeFile(inside, 'changed')).rejects.toMatchObject({ code: 'EROFS' });
    expect(await readFile(inside, 'utf8')).toBe('fixed');
  });
});
