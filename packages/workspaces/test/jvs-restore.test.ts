import { link, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, whereMounts, whyNotMountable } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { JvsFixture } from './jvs-fixture.ts';

let jvs: JvsFixture;
let counter = 0;
beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(() => jvs[Symbol.asyncDispose]());

const workspace = async (below = jvs.work): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: below });
  const cwd = join(below, `ws-${counter}`, 'main');
  await mkdir(join(cwd, 'd'));
  for (const name of ['a', 'd/b']) await writeFile(join(cwd, name), `one ${name}`);
  return cwd;
};

describe('a restore', () => {
  test.for(['plain', 'btrfs'] as const)(
    'what somebody writes while a restore is at work is kept, on %s',
    async (kind, { skip }) => {
      skip(kind === 'btrfs' && !canMount('btrfs'), whyNotMountable('btrfs'));
      await using mounted = kind === 'btrfs' ? await MountedFilesystem.create(kind, jvs.home) : undefined;
      const cwd = await workspace(mounted?.path);
      await jvs.ok(['snapshot', 'base', '--tag', 'base'], { cwd });
      for (const name of ['a', 'd/b', 'extra', 'gone', 'kind'])
        await writeFile(join(cwd, name), `saved ${name}`);
      await symlink('here', join(cwd, 'points'));
      await mkdir(join(cwd, 'folder'));
      const long = ['1', '2'].map((end) => `${'n'.repeat(240)}${end}`);
      for (const name of [...long, 'name', 'first']) await writeFile(join(cwd, name), 'saved');
      for (const name of ['other', 'second', 'third']) await link(join(cwd, 'first'), join(cwd, name));
      // Everything is saved and staged when somebody goes on.
      const { code, stderr } = await jvs.runStopped(
        'restore-staged',
        [join(jvs.bin, 'jvs'), 'restore', 'base'],
        { cwd },
        async () => {
          await writeFile(join(cwd, 'a'), 'written late a');
          await writeFile(join(cwd, 'extra'), 'written late extra');
          for (const name of ['gone', 'points', 'kind']) await rm(join(cwd, name));
          await symlink('there', join(cwd, 'points'));
          await mkdir(join(cwd, 'kind'));
          await writeFile(join(cwd, 'kind/inside'), 'written late inside');
          await rm(join(cwd, 'folder'), { recursive: true });
          await writeFile(join(cwd, 'folder'), 'written late folder');
          for (const name of long) await writeFile(join(cwd, name), `written late ${name}`);
          // Another file takes the place of what is another name of one, as editors save.
          await writeFile(join(cwd, 'name'), 'written late second');
          await rename(join(cwd, 'name'), join(cwd, 'second'));
        },
      );
      expect(code).toBe(0);
      expect(stderr).toMatch(/8 entries that were ignored or had just changed were in the way and are now/);
      expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
      expect(await readFile(join(cwd, 'd/b'), 'utf8')).toBe('one d/b');
      const kept = await jvs.bash(
        "{ grep -rh 'written late' .. --exclude-dir=trees; find .. -type l -printf '%l\\n'; } | sort -u",
        { cwd },
      );
      expect(kept.stdout.trim().split('\n')).toEqual(
        expect.arrayContaining([
          'there',
          ...['a', 'extra', 'inside', 'folder', 'second', ...long].map((name) => `written late ${name}`),
        ]),
      );
      // What was saved before is what the scan saw.
      const automatic = (await jvs.json<{ note: string; snapshot_id: string }[]>(['history'], { cwd })).find(
        ({ note }) => note.startsWith('Unsaved changes'),
      );
      await jvs.ok(['restore', automatic?.snapshot_id ?? ''], { cwd });
      for (const name of ['a', 'd/b', 'extra', 'gone', 'kind'])
        expect(await readFile(join(cwd, name), 'utf8')).toBe(`saved ${name}`);
      await jvs.ok(['verify', '--all'], { cwd });
    },
  );

  test(
    'ignored files that have the name of a restored one are kept on btrfs, each time',
    whereMounts('btrfs'),
    async () => {
      await using mounted = await MountedFilesystem.create('btrfs', jvs.home);
      const cwd = await workspace(mounted.path);
      await jvs.ok(['snapshot', 'with', '--tag', 'with'], { cwd });
      for (const at of [1, 2]) {
        await writeFile(join(cwd, '.jvsignore'), 'a*\n');
        await writeFile(join(cwd, 'a'), `only here ${at}`);
        const { stderr } = await jvs.jvs(['restore', 'with'], { cwd });
        const [, ending = ''] =
          /1 entry .* is now in the same directory, with a name ending in (\S+)/.exec(stderr) ?? [];
        expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
        expect(await readFile(join(cwd, `a${ending}`), 'utf8')).toBe(`only here ${at}`);
      }
    },
  );
});
