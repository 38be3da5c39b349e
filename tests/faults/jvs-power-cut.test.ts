import { randomBytes } from 'node:crypto';
import { open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { JvsFixture } from '../../packages/workspaces/test/jvs-fixture.ts';
import { PowerCutDisk } from './power-cut-disk.ts';

vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

const mebibyte = 1024 * 1024;

let jvs: JvsFixture;
beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(() => jvs[Symbol.asyncDispose]());

interface Report {
  readonly snapshot_id: string;
  readonly ok: boolean;
}

describe('when the power goes', whereMounts('ext4', 'xfs', 'btrfs'), () => {
  test.each([
    ['ext4', 'copy', 100, 24],
    ['xfs', 'reflink-copy', 100, 12],
    ['btrfs', 'reflink-copy', 100, 12],
    ['btrfs', 'btrfs', 20, 6],
  ] as const)(
    'every snapshot that was acknowledged is whole, on %s with the engine %s',
    async (kind, engine, files, cuts) => {
      await using disk = await PowerCutDisk.create(kind, jvs.home, 768 * mebibyte);
      await jvs.ok(['init', 'ws', '--engine', engine], { cwd: disk.path });
      const main = join(disk.path, 'ws/main');
      // Some of them are too small to be written past the page cache.
      for (let file = 0; file < files; file += 1)
        await writeFile(join(main, `large-${file}`), randomBytes(file % 10 ? 900_000 : 3 * mebibyte + 4321));
      await jvs.ok(['snapshot', 'base'], { cwd: main });
      await jvs.ok(['worktree', 'fork', 'side'], { cwd: main });
      const side = join(disk.path, 'ws/worktrees/side/main');
      const acknowledged: string[] = [];
      const snapshot = async (cwd: string): Promise<void> => {
        const { code, stdout, stderr } = await jvs.jvs(['snapshot', 'again'], { cwd });
        if (code !== 0) throw new Error(stderr);
        acknowledged.push(stdout.slice(0, 8));
      };
      await using somebody = await open(join(disk.path, 'somebody'), 'w');
      for (let cut = 0; cut < cuts; cut += 1) {
        // All is read again, and nothing of it has changed.
        await jvs.bash(cut % 2 ? 'touch *' : 'for f in *; do mv $f x-$f; done', { cwd: main });
        await writeFile(join(side, 'small'), `cut ${cut}`);
        const taken = Promise.all([snapshot(main), snapshot(side)]);
        // Whoever waits for the disk has it write down all that it was told so far, the names of others' files too.
        await setTimeout(20 + Math.random() * 300);
        await somebody.write('x');
        await somebody.sync();
        const before = [...acknowledged];
        await disk.cut(
          async () => void (await taken),
          async (path) => {
            const { stdout } = await jvs.jvs(['verify', '--all', '--json'], {
              cwd: join(path, 'ws/main'),
            });
            const whole = (JSON.parse(stdout) as Report[]).filter(({ ok }) => ok);
            expect(whole.map(({ snapshot_id }) => snapshot_id.slice(0, 8))).toEqual(
              expect.arrayContaining(before),
            );
          },
        );
      }
      expect(acknowledged.length).toBeGreaterThan(cuts);
    },
  );

  test.each([
    ['ext4', 'copy'],
    ['xfs', 'reflink-copy'],
    ['btrfs', 'reflink-copy'],
    ['btrfs', 'btrfs'],
  ] as const)('a restore that was acknowledged is there, on %s with the engine %s', async (kind, engine) => {
    await using disk = await PowerCutDisk.create(kind, jvs.home, 512 * mebibyte);
    await jvs.ok(['init', 'ws', '--engine', engine], { cwd: disk.path });
    const main = join(disk.path, 'ws/main');
    const names = Array.from({ length: 40 }, (_, file) => `file-${file}`);
    const contents = names.map((_, file) => randomBytes(file % 10 ? 3000 : 400_000));
    for (const [file, name] of names.entries()) await writeFile(join(main, name), contents[file]!);
    await jvs.ok(['snapshot', 'base'], { cwd: main });
    for (const name of names.slice(0, 30)) await writeFile(join(main, name), 'changed');
    await jvs.bash('sync --file-system .', { cwd: main });
    for (const name of names.slice(30)) await rm(join(main, name));
    await jvs.ok(['restore', 'base'], { cwd: main });
    await disk.cut(
      async () => {},
      async (path) => {
        const found = await Promise.all(names.map((name) => readFile(join(path, 'ws/main', name))));
        expect(found.map((bytes, file) => bytes.equals(contents[file]!))).not.toContain(false);
      },
    );
  });

  test.each([
    ['ext4', 'copy'],
    ['xfs', 'reflink-copy'],
    ['btrfs', 'reflink-copy'],
    ['btrfs', 'btrfs'],
  ] as const)(
    'in the middle of a restore, every file is whole, old or new, on %s with the engine %s',
    async (kind, engine) => {
      await using disk = await PowerCutDisk.create(kind, jvs.home, 512 * mebibyte);
      await jvs.ok(['init', 'ws', '--engine', engine], { cwd: disk.path });
      const main = join(disk.path, 'ws/main');
      const names = Array.from({ length: 40 }, (_, file) => `file-${file}`);
      const old = Buffer.alloc(3000, 'old');
      const fresh = Buffer.alloc(5000, 'new');
      for (const name of names) await writeFile(join(main, name), fresh);
      await jvs.ok(['snapshot', 'base'], { cwd: main });
      for (const name of names) await writeFile(join(main, name), old);
      await jvs.bash('sync --file-system .', { cwd: main });
      await using somebody = await open(join(disk.path, 'somebody'), 'w');
      const { code, stderr } = await jvs.runStopped(
        'restore-applied',
        [join(jvs.bin, 'jvs'), 'restore', 'HEAD'],
        { cwd: main },
        async () => {
          // The names are in place, and somebody's sync may have the disk write them down.
          await somebody.write('x');
          await somebody.sync();
          await disk.cut(
            async () => {},
            async (path) => {
              const found = await Promise.all(names.map((name) => readFile(join(path, 'ws/main', name))));
              const torn = found.filter((bytes) => !bytes.equals(old) && !bytes.equals(fresh));
              expect(torn).toEqual([]);
            },
          );
        },
      );
      expect({ code, stderr }).toMatchObject({ code: 0 });
      expect(await readFile(join(main, names[0]!))).toEqual(fresh);
    },
  );

  test.each([
    ['ext4', 'copy'],
    ['xfs', 'reflink-copy'],
    ['btrfs', 'btrfs'],
  ] as const)(
    'at any moment of a restore, every file is there and whole, old or new, on %s with the engine %s',
    async (kind, engine) => {
      await using disk = await PowerCutDisk.create(kind, jvs.home, 512 * mebibyte);
      await jvs.ok(['init', 'ws', '--engine', engine], { cwd: disk.path });
      const main = join(disk.path, 'ws/main');
      const names = Array.from({ length: 1500 }, (_, file) => `file-${file}`);
      const old = Buffer.alloc(3000, 'old');
      const fresh = Buffer.alloc(5000, 'new');
      for (const name of names) await writeFile(join(main, name), fresh);
      await jvs.ok(['snapshot', 'base'], { cwd: main });
      await using somebody = await open(join(disk.path, 'somebody'), 'w');
      for (let cut = 0; cut < 8; cut += 1) {
        for (const name of names) await writeFile(join(main, name), old);
        await jvs.bash('sync --file-system .', { cwd: main });
        let restored = false;
        const restoring = jvs.ok(['restore', '--discard', 'base'], { cwd: main }).finally(() => {
          restored = true;
        });
        // Somebody has the disk write down what is there, again and again, until the first file is replaced and some time after.
        while (!restored && (await stat(join(main, names[0]!))).size === old.length) await somebody.sync();
        for (let more = Math.random() * 8; more > 0 && !restored; more -= 1) {
          await somebody.write('x');
          await jvs.bash('sync --file-system .', { cwd: disk.path });
        }
        await disk.cut(
          async () => void (await restoring),
          async (path) => {
            const found = await Promise.all(
              names.map((name) => readFile(join(path, 'ws/main', name)).catch(() => undefined)),
            );
            const torn = names.filter((_, file) => !found[file]?.equals(old) && !found[file]?.equals(fresh));
            expect(torn).toEqual([]);
          },
        );
      }
    },
  );
});
