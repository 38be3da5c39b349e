import { execFile } from 'node:child_process';
import { stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { JvsFixture, readText } from './jvs-fixture.ts';

// Many real processes: on a machine with much else to do they take their time.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

const run = promisify(execFile);
const anHourMs = 60 * 60 * 1000;
let jvs: JvsFixture;

beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(() => jvs[Symbol.asyncDispose]());

/** A worktree with one file; `write` changes it without changing its size and the time that it shows. */
const prepare = async (
  filesystem: MountedFilesystem,
): Promise<{ cwd: string; file: string; write: (text: string) => Promise<void> }> => {
  await jvs.ok(['init', 'ws'], { cwd: filesystem.path });
  const cwd = join(filesystem.path, 'ws/main');
  const file = join(cwd, 'f');
  const write = async (text: string): Promise<void> => {
    await writeFile(file, text);
    await utimes(file, 1_000_000, 1_000_000);
  };
  await write('aaaa');
  return { cwd, file, write };
};

const changes = (cwd: string): Promise<string> => jvs.ok(['diff', 'HEAD'], { cwd });

/**
 * The time of change cannot be set from outside, and the clock of this machine is not ours to turn; but it can be
 * written into a filesystem that is not mounted, and then it is as if the clock had shown it.
 */
const changedAt = async (filesystem: MountedFilesystem, timeMs: number): Promise<void> => {
  const seconds = Math.floor(timeMs / 1000);
  await filesystem.whileUnmounted(async (image) => {
    for (const value of [`ctime @${seconds}`, 'ctime_extra 0'])
      await run('debugfs', ['-w', '-R', `set_inode_field /ws/main/f ${value}`, image]);
  });
  expect((await stat(join(filesystem.path, 'ws/main/f'))).ctimeMs).toBe(seconds * 1000);
};

describe('a change that keeps size and time', whereMounts('ext4'), () => {
  test('is seen when the clock was set back before it was made', async () => {
    await using filesystem = await MountedFilesystem.create('ext4', jvs.home);
    const { cwd, file, write } = await prepare(filesystem);
    await changedAt(filesystem, Date.now() - anHourMs);
    await jvs.ok(['snapshot', 'a'], { cwd });
    expect(await changes(cwd)).toBe('');
    await write('bbbb');
    await changedAt(filesystem, Date.now() - 2 * anHourMs);
    expect(await changes(cwd)).toBe('M f\n');
    await jvs.ok(['snapshot', 'b'], { cwd });
    await jvs.ok(['restore', 'a'], { cwd });
    expect(await readText(file)).toBe('aaaa');
    await jvs.ok(['restore', 'b'], { cwd });
    expect(await readText(file)).toBe('bbbb');
  });

  test('is seen when the clock comes to the same moment again', async () => {
    await using filesystem = await MountedFilesystem.create('ext4', jvs.home);
    const { cwd, write } = await prepare(filesystem);
    // The clock was ahead when the file was made; set right, it will pass that moment once more.
    const moment = Date.now() + anHourMs;
    await changedAt(filesystem, moment);
    await jvs.ok(['snapshot', 'a'], { cwd });
    expect(await changes(cwd)).toBe('');
    await write('bbbb');
    await changedAt(filesystem, moment);
    expect(await changes(cwd)).toBe('M f\n');
  });

  test('is seen on a filesystem that counts in seconds', async () => {
    await using filesystem = await MountedFilesystem.create('ext4-seconds', jvs.home);
    const { cwd, file, write } = await prepare(filesystem);
    for (let round = 0; round < 10; round += 1) {
      await write('aaaa');
      expect((await stat(file)).ctimeMs % 1000).toBe(0);
      await jvs.ok(['snapshot', 'a'], { cwd });
      await write('bbbb');
      expect(await changes(cwd)).toBe('M f\n');
    }
  });

  test('is seen when it is made while something else is restored', async () => {
    await using filesystem = await MountedFilesystem.create('ext4-seconds', jvs.home);
    const { cwd, file, write } = await prepare(filesystem);
    const neighbour = join(cwd, 'g');
    await writeFile(neighbour, 'stored');
    await jvs.ok(['snapshot', 'base', '--tag', 'base'], { cwd });
    const changedMs = async (): Promise<number> => (await stat(file)).ctimeMs;
    for (let savedMs = 0, lateMs = 1; savedMs !== lateMs; ) {
      await writeFile(neighbour, 'to be restored');
      // Both changes must be in one second, which is long enough at its beginning.
      await setTimeout(1000 - (Date.now() % 1000));
      await write('aaaa');
      savedMs = await changedMs();
      const restore = [join(jvs.bin, 'jvs'), 'restore', 'base'] as const;
      const { code } = await jvs.runStopped('restore-staged', restore, { cwd }, async () => {
        await write('bbbb');
        lateMs = await changedMs();
        // Until the clock is far enough for the next look to think that the file is old.
        await setTimeout(2000);
      });
      expect(code).toBe(0);
      expect(await readText(neighbour)).toBe('stored');
    }
    expect(await changes(cwd)).toBe('M f\n');
  });
});
