import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { DiskStore } from '@coppice/disks';
import type { ErrorCode } from '@coppice/protocol';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fillWithOddities, treeListing } from './odd-tree.ts';
import { skipFor } from './skip-for.ts';

/** An error as it must come; a code that the table does not have does not compile. */
const failure = (code: ErrorCode): { code: ErrorCode } => ({ code });

const run = promisify(execFile);
const sizeBytes = 64 * 1024 ** 2;

export interface DiskStoreHarness {
  readonly store: DiskStore;
  /** Where the store keeps its areas. */
  readonly directory: string;
  /** As a daemon does that was killed and started again: the store that it gives sees the same disks. */
  reopen(): Promise<DiskStore>;
  dispose(): Promise<void>;
}

/** The promises of the port DiskStore. Each engine's test plugs into it. */
export const describeDiskStore = (
  name: string,
  open: () => Promise<DiskStoreHarness>,
  lacking?: string,
): void => {
  describe(`the disk store on ${name}`, skipFor(lacking), () => {
    let harness: DiskStoreHarness;
    let store: DiskStore;
    let counter = 0;
    const fresh = (kind: string): string => `${kind}_${counter++}`;
    const upper = (diskId: string, ...path: string[]): string =>
      join(store.diskDir(diskId), 'upper', ...path);
    const snapshotFile = (id: string, path: string): string => join(store.snapshotDir(id), 'upper', path);

    beforeAll(async () => {
      harness = await open();
      store = harness.store;
    });
    afterAll(async () => {
      await store?.close();
      await harness?.dispose();
    });

    const diskWith = async (content: string): Promise<string> => {
      const diskId = fresh('disk');
      await store.createDisk(diskId, sizeBytes);
      await writeFile(upper(diskId, 'file'), content);
      return diskId;
    };

    it('gives a new disk an empty upper and work', async () => {
      const diskId = fresh('disk');
      await store.createDisk(diskId, sizeBytes);
      expect(await readdir(upper(diskId))).toEqual([]);
      expect(await readdir(join(store.diskDir(diskId), 'work'))).toEqual([]);
      expect((await stat(upper(diskId))).mode & 0o7777).toBe(0o755);
    });

    it('shares the pages of a memory with an older one wherever they stand, and holds the same as before', async () => {
      const page = 4096;
      const older = randomBytes(1024 * page);
      // Three pages more at its beginning, one that changed in its middle, and a last one that is not whole.
      const newer = Buffer.concat([randomBytes(3 * page), older, randomBytes(100)]);
      newer.fill(7, 600 * page, 601 * page);
      const [olderId, newerId] = [fresh('memory'), fresh('memory')];
      for (const [id, pages] of [[olderId, older] as const, [newerId, newer] as const]) {
        await mkdir(store.memoryDir(id));
        await writeFile(join(store.memoryDir(id), 'pages.img'), pages);
      }
      expect((await store.memoryUsage(newerId)).usedBytes).toBeGreaterThanOrEqual(newer.length);
      await store.shareMemory(newerId, olderId);
      expect(newer.equals(await readFile(join(store.memoryDir(newerId), 'pages.img')))).toBe(true);
      expect(await readdir(store.memoryDir(newerId))).toEqual(['pages.img']);
      const { referencedBytes, usedBytes } = await store.memoryUsage(newerId);
      expect(referencedBytes).toBeGreaterThanOrEqual(newer.length);
      if (store.engine === 'copy') expect(usedBytes).toBe(referencedBytes);
      else expect(usedBytes).toBeLessThanOrEqual(16 * page);
      await store.removeSnapshot(olderId);
      expect(newer.equals(await readFile(join(store.memoryDir(newerId), 'pages.img')))).toBe(true);
    });

    it('keeps in a snapshot what the disk held, while the disk goes on', async () => {
      const diskId = await diskWith('first');
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      await writeFile(upper(diskId, 'file'), 'second');
      await rm(upper(diskId, 'file'));
      expect(await readFile(snapshotFile(snapshotId, 'file'), 'utf8')).toBe('first');
    });

    it('grows disks from a snapshot that do not know each other', async () => {
      const diskId = await diskWith('root');
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      const forks = Array.from({ length: 5 }, () => fresh('disk'));
      await Promise.all(forks.map((fork) => store.cloneDisk(snapshotId, fork, sizeBytes)));
      await Promise.all(forks.map((fork) => writeFile(upper(fork, 'file'), fork)));
      for (const fork of forks) expect(await readFile(upper(fork, 'file'), 'utf8')).toBe(fork);
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('root');
      expect(await readFile(snapshotFile(snapshotId, 'file'), 'utf8')).toBe('root');
    });

    it('replaces a disk by what a snapshot holds, and older and newer snapshots survive it', async () => {
      const diskId = await diskWith('one');
      const [older, newer] = [fresh('snap'), fresh('snap')];
      await store.snapshotDisk(diskId, older);
      await writeFile(upper(diskId, 'file'), 'two');
      await store.snapshotDisk(diskId, newer);
      await writeFile(upper(diskId, 'more'), 'three');
      await store.replaceDisk(diskId, older, sizeBytes);
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('one');
      expect(await readdir(upper(diskId))).toEqual(['file']);
      await store.replaceDisk(diskId, newer, sizeBytes);
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('two');
      expect(await readFile(snapshotFile(older, 'file'), 'utf8')).toBe('one');
    });

    it('carries modes, owners, times, attributes, links, holes and odd names through snapshot and fork', async () => {
      const diskId = fresh('disk');
      await store.createDisk(diskId, sizeBytes);
      await fillWithOddities(upper(diskId));
      const before = await treeListing(upper(diskId));
      const [snapshotId, fork] = [fresh('snap'), fresh('disk')];
      await store.snapshotDisk(diskId, snapshotId);
      await store.cloneDisk(snapshotId, fork, sizeBytes);
      expect(await treeListing(join(store.snapshotDir(snapshotId), 'upper'))).toBe(before);
      expect(await treeListing(upper(fork))).toBe(before);
    });

    it('refuses a name that is taken and leaves what has it alone', async () => {
      const diskId = await diskWith('mine');
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      await writeFile(upper(diskId, 'file'), 'changed');
      await expect(store.createDisk(diskId, sizeBytes)).rejects.toMatchObject(failure('name_taken'));
      await expect(store.cloneDisk(snapshotId, diskId, sizeBytes)).rejects.toMatchObject(
        failure('name_taken'),
      );
      await expect(store.snapshotDisk(diskId, snapshotId)).rejects.toMatchObject(failure('name_taken'));
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('changed');
      expect(await readFile(snapshotFile(snapshotId, 'file'), 'utf8')).toBe('mine');
    });

    it('says what is missing and makes nothing of it', async () => {
      const diskId = await diskWith('here');
      const before = await store.list();
      await expect(store.cloneDisk('snap_none', fresh('disk'), sizeBytes)).rejects.toMatchObject(
        failure('not_found'),
      );
      await expect(store.replaceDisk(diskId, 'snap_none', sizeBytes)).rejects.toMatchObject(
        failure('not_found'),
      );
      await expect(store.snapshotDisk('disk_none', fresh('snap'))).rejects.toMatchObject(
        failure('not_found'),
      );
      expect(await store.list()).toEqual(before);
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('here');
    });

    it('refuses to put a snapshot in the place of a disk that is not there', async () => {
      const snapshotId = fresh('snap');
      await store.snapshotDisk(await diskWith('x'), snapshotId);
      const absent = fresh('disk');
      await expect(store.replaceDisk(absent, snapshotId, sizeBytes)).rejects.toMatchObject(
        failure('not_found'),
      );
      expect((await store.list()).disks).not.toContain(absent);
    });

    it('removes disks and snapshots once and again, and lists the rest', async () => {
      const diskId = await diskWith('x');
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      expect((await store.list()).disks).toContain(diskId);
      expect((await store.list()).snapshots).toContain(snapshotId);
      for (let round = 0; round < 2; round++) {
        await store.removeDisk(diskId);
        await store.removeSnapshot(snapshotId);
      }
      expect((await store.list()).disks).not.toContain(diskId);
      expect((await store.list()).snapshots).not.toContain(snapshotId);
      await store.createDisk(diskId, sizeBytes);
      expect(await readdir(upper(diskId))).toEqual([]);
    });

    it('keeps a fork whole when the disk and the snapshot that it grew from are gone', async () => {
      const diskId = await diskWith('kept');
      const [snapshotId, fork] = [fresh('snap'), fresh('disk')];
      await store.snapshotDisk(diskId, snapshotId);
      await store.cloneDisk(snapshotId, fork, sizeBytes);
      await store.removeDisk(diskId);
      await store.removeSnapshot(snapshotId);
      await store.close();
      expect(await readFile(upper(fork, 'file'), 'utf8')).toBe('kept');
    });

    it.each(['..', '.', '', 'a/b', '../x', '.hidden', 'a\0b', 'x'.repeat(65)])(
      'refuses the id %j',
      async (id) => {
        expect(() => store.diskDir(id)).toThrowError(expect.objectContaining(failure('invalid_argument')));
        await expect(store.createDisk(id, sizeBytes)).rejects.toMatchObject(failure('invalid_argument'));
        await expect(store.removeDisk(id)).rejects.toMatchObject(failure('invalid_argument'));
        await expect(store.removeSnapshot(id)).rejects.toMatchObject(failure('invalid_argument'));
      },
    );

    it.each([0, -1, 1.5, Number.NaN])('refuses a size of %d bytes', async (bytes) => {
      const diskId = fresh('disk');
      await expect(store.createDisk(diskId, bytes)).rejects.toMatchObject(failure('invalid_argument'));
      expect((await store.list()).disks).not.toContain(diskId);
    });

    it('removes the memory of a checkpoint with its snapshot', async () => {
      const snapshotId = fresh('snap');
      await store.snapshotDisk(await diskWith('x'), snapshotId);
      await mkdir(store.memoryDir(snapshotId));
      await writeFile(join(store.memoryDir(snapshotId), 'pages.img'), 'memory');
      await store.removeSnapshot(snapshotId);
      await expect(stat(store.memoryDir(snapshotId))).rejects.toMatchObject({ code: 'ENOENT' });
    });

    it('lists a snapshot of which only the memory is there', async () => {
      const snapshotId = fresh('snap');
      await mkdir(store.memoryDir(snapshotId));
      expect((await store.list()).snapshots).toContain(snapshotId);
      await store.removeSnapshot(snapshotId);
      expect((await store.list()).snapshots).not.toContain(snapshotId);
    });

    it('lists what is half made, and clears it away when it is opened again', async () => {
      const diskId = await diskWith('whole');
      const half = join(harness.directory, 'disks', '.new.disk_half.0123456789ab');
      const old = join(harness.directory, 'disks', `.old.${diskId}.0123456789ab`);
      await mkdir(join(half, 'upper'), { recursive: true });
      await mkdir(join(old, 'upper'), { recursive: true });
      await writeFile(join(old, 'upper', 'file'), 'before the restore');
      expect((await store.list()).disks).toContain('disk_half');
      await store.close();
      store = await harness.reopen();
      expect((await store.list()).disks).toContain(diskId);
      expect((await store.list()).disks).not.toContain('disk_half');
      const names = await readdir(join(harness.directory, 'disks'));
      expect(names.filter((entry) => entry.startsWith('.'))).toEqual([]);
      expect(await readFile(upper(diskId, 'file'), 'utf8')).toBe('whole');
    });

    it('leaves nothing hidden behind when it is closed', async () => {
      const diskId = await diskWith('x');
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      await store.replaceDisk(diskId, snapshotId, sizeBytes);
      await store.removeDisk(diskId);
      await store.removeSnapshot(snapshotId);
      await store.close();
      for (const area of ['disks', 'snapshots', 'memory']) {
        const names = await readdir(join(harness.directory, area));
        expect(names.filter((entry) => entry.startsWith('.'))).toEqual([]);
      }
    });

    it('counts what a disk and a snapshot hold', async () => {
      const diskId = fresh('disk');
      await store.createDisk(diskId, sizeBytes);
      const empty = await store.diskUsage(diskId);
      await writeFile(upper(diskId, 'data'), Buffer.alloc(4 * 1024 ** 2, 'x'));
      const full = await store.diskUsage(diskId);
      expect(full.referencedBytes - empty.referencedBytes).toBeGreaterThanOrEqual(4 * 1024 ** 2);
      expect(full.referencedBytes).toBeLessThan(6 * 1024 ** 2);
      const snapshotId = fresh('snap');
      await store.snapshotDisk(diskId, snapshotId);
      const { referencedBytes } = await store.snapshotUsage(snapshotId);
      expect(referencedBytes).toBeGreaterThanOrEqual(4 * 1024 ** 2);
      expect(referencedBytes).toBeLessThan(6 * 1024 ** 2);
      const fork = fresh('disk');
      await store.cloneDisk(snapshotId, fork, sizeBytes);
      expect((await store.diskUsage(fork)).referencedBytes).toBeGreaterThanOrEqual(4 * 1024 ** 2);
      expect(await store.freeBytes()).toBeGreaterThan(0);
    });

    it('counts what all snapshots of a disk hold, also of what was deleted since', async () => {
      const partBytes = 4 * 1024 ** 2;
      const diskId = fresh('disk');
      await store.createDisk(diskId, sizeBytes);
      const snapshots: string[] = [];
      for (let round = 0; round < 3; round++) {
        await rm(upper(diskId, 'data'), { force: true });
        await writeFile(upper(diskId, 'data'), randomBytes(partBytes));
        snapshots.push(fresh('snap'));
        await store.snapshotDisk(diskId, snapshots.at(-1)!);
        expect(await store.writtenBytes(diskId, snapshots)).toBeGreaterThanOrEqual((round + 1) * partBytes);
      }
      expect(await store.writtenBytes(diskId, snapshots)).toBeLessThan(3.5 * partBytes);
    });

    it('does what a plain model does under any sequence of write, snapshot, restore, fork and delete', async () => {
      const names = fc.constantFrom('a', 'b', 'sub/c');
      const pick = fc.nat(9);
      const step = fc.oneof(
        fc.record({ kind: fc.constant('write' as const), disk: pick, name: names, content: fc.string() }),
        fc.record({ kind: fc.constant('unlink' as const), disk: pick, name: names }),
        fc.record({ kind: fc.constant('snapshot' as const), disk: pick }),
        fc.record({ kind: fc.constant('restore' as const), disk: pick, snapshot: pick }),
        fc.record({ kind: fc.constant('fork' as const), snapshot: pick }),
        fc.record({ kind: fc.constant('removeDisk' as const), disk: pick }),
        fc.record({ kind: fc.constant('removeSnapshot' as const), snapshot: pick }),
      );
      type Files = Map<string, string>;
      const filesOf = async (directory: string): Promise<Files> => {
        const { stdout } = await run('find', [directory, '-type', 'f', '-printf', '%P\\n']);
        const found = stdout.split('\n').filter((path) => path !== '');
        return new Map(
          await Promise.all(
            found.sort().map(async (path) => [path, await readFile(join(directory, path), 'utf8')] as const),
          ),
        );
      };
      const sorted = (files: Files): Files =>
        new Map([...files].sort(([one], [other]) => (one < other ? -1 : 1)));

      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 15 }), async (steps) => {
          const disks = new Map<string, Files>();
          const snapshots = new Map<string, Files>();
          const first = fresh('disk');
          await store.createDisk(first, sizeBytes);
          disks.set(first, new Map());
          const choose = (from: Map<string, Files>, index: number): string | undefined =>
            from.size === 0 ? undefined : [...from.keys()][index % from.size];
          try {
            for (const action of steps) {
              const disk = 'disk' in action ? choose(disks, action.disk) : undefined;
              const snapshot = 'snapshot' in action ? choose(snapshots, action.snapshot) : undefined;
              if ('disk' in action && disk === undefined) continue;
              if ('snapshot' in action && snapshot === undefined) continue;
              if (action.kind === 'write') {
                await mkdir(join(upper(disk!, action.name), '..'), { recursive: true });
                await writeFile(upper(disk!, action.name), action.content);
                disks.get(disk!)!.set(action.name, action.content);
              } else if (action.kind === 'unlink') {
                await rm(upper(disk!, action.name), { force: true });
                disks.get(disk!)!.delete(action.name);
              } else if (action.kind === 'snapshot') {
                const id = fresh('snap');
                await store.snapshotDisk(disk!, id);
                snapshots.set(id, new Map(disks.get(disk!)));
              } else if (action.kind === 'restore') {
                await store.replaceDisk(disk!, snapshot!, sizeBytes);
                disks.set(disk!, new Map(snapshots.get(snapshot!)));
              } else if (action.kind === 'fork') {
                const id = fresh('disk');
                await store.cloneDisk(snapshot!, id, sizeBytes);
                disks.set(id, new Map(snapshots.get(snapshot!)));
              } else if (action.kind === 'removeDisk') {
                await store.removeDisk(disk!);
                disks.delete(disk!);
              } else {
                await store.removeSnapshot(snapshot!);
                snapshots.delete(snapshot!);
              }
            }
            for (const [id, files] of disks) expect(await filesOf(upper(id))).toEqual(sorted(files));
            for (const [id, files] of snapshots) {
              expect(await filesOf(join(store.snapshotDir(id), 'upper'))).toEqual(sorted(files));
            }
          } finally {
            for (const id of disks.keys()) await store.removeDisk(id);
            for (const id of snapshots.keys()) await store.removeSnapshot(id);
          }
        }),
        { numRuns: 25, seed: 7 },
      );
    }, 600_000);
  });
};
