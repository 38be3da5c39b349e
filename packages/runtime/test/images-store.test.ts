import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { IdSource } from '@coppice/protocol';
import { pack } from 'tar-stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ImageStore } from '../src/images/image-store.ts';

let home: string;
let directory: string;
let images: ImageStore;

const openStore = (): Promise<ImageStore> => {
  const ids = new IdSource();
  return ImageStore.open({ directory, newId: () => ids.next('image'), now: () => new Date() });
};

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-images-'));
  directory = join(home, 'images');
  images = await openStore();
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

async function archive(text: string): Promise<Readable> {
  const packing = pack();
  packing.entry({ name: 'file' }, text);
  packing.finalize();
  return Readable.from([await buffer(packing as unknown as Readable)]);
}

describe('images', () => {
  it('are listed in the order they were made, and found by name and by id, after a restart too', async () => {
    const first = await images.importArchive('zebra', await archive('1'));
    const second = await images.importArchive('ant', await archive('2'));
    const restarted = await openStore();
    expect(await restarted.list()).toEqual([first, second]);
    expect(await restarted.get('zebra')).toEqual(first);
    expect(await restarted.get(second.id)).toEqual(second);
    await expect(restarted.get('bee')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('are removed with all their files', async () => {
    const image = await images.importArchive('one', await archive('1'));
    await images.remove(image.id);
    expect(await readdir(directory)).toEqual([]);
    await expect(images.remove(image.id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('have names that are unique, also while one is being made', async () => {
    const settled = await Promise.allSettled([
      images.importArchive('same', await archive('1')),
      images.importArchive('same', await archive('2')),
      images.importArchive('other', await archive('3')),
    ]);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    await expect(images.importArchive('same', await archive('4'))).rejects.toMatchObject({
      code: 'name_taken',
    });
    expect(await images.list()).toHaveLength(2);
    expect((await readdir(directory)).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it.each([
    '',
    '../up',
    'a/b',
    'Upper',
    '-dash',
    'a:b:c',
    'x'.repeat(64),
    'a\nb',
    `img_${'0'.repeat(26)}`,
    'host',
    'debian:sid',
  ])('do not take the name %j', async (name) => {
    await expect(images.importArchive(name, await archive('1'))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    expect(await readdir(directory)).toEqual([]);
  });

  it('whose record is damaged are an error that names the file', async () => {
    const image = await images.importArchive('one', await archive('1'));
    await writeFile(join(directory, image.id, 'image.json'), '{"id":');
    await expect(images.list()).rejects.toMatchObject({
      code: 'corrupt',
      message: expect.stringContaining(image.id),
    });
  });
});

describe('opening', () => {
  it('removes what a process that is gone left half made, and keeps what a living one makes', async () => {
    const dead = spawn('true');
    await new Promise((resolve) => dead.on('exit', resolve));
    const left = [`.building-${dead.pid}-img_x`, `.removing-${dead.pid}-img_y`];
    for (const name of left) await mkdir(join(directory, name, 'rootfs'), { recursive: true });
    // A leftover may hold links out of it; they are removed and not followed.
    const outside = join(home, 'outside');
    await mkdir(outside);
    await writeFile(join(outside, 'file'), 'x');
    await symlink(outside, join(directory, left[0]!, 'rootfs', 'link'));
    await mkdir(join(directory, `.building-${process.pid}-img_z`));
    await openStore();
    expect(await readdir(directory)).toEqual([`.building-${process.pid}-img_z`]);
    expect(await readdir(outside)).toEqual(['file']);
  });

  it('of another machine keep their digest, step aside where their name is taken, and are refused when they are not what they say', async () => {
    const { digest } = await images.importArchive('app', await archive('1'));
    const fill = (text: string) => async (rootfs: string) => {
      const tar = spawn('cp', ['-a', `${images.rootfs((await images.get('app')).id)}/.`, rootfs]);
      await once(tar, 'close');
      if (text !== '1') await writeFile(join(rootfs, 'file'), text);
    };
    const moved = await images.importTree('app', digest, fill('1'));
    expect(moved).toMatchObject({ name: `app-${digest.slice(-12)}`, digest, source: { kind: 'export' } });
    expect((await images.importTree('host', digest, fill('1'))).name).toBe(`host-${digest.slice(-12)}`);
    expect((await images.importTree('fresh', digest, fill('1'))).name).toBe('fresh');
    await expect(images.importTree('other', digest, fill('2'))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    expect(await images.find('other')).toBeUndefined();
    expect((await readdir(directory)).every((name) => name.startsWith('img_'))).toBe(true);
  });
});

describe('names of Debian suites', () => {
  it.each(['debian:', 'debian:../x', 'debian:a b', 'debian:-x'])('are checked: %s', async (name) => {
    await expect(images.ensure(name)).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(await readdir(directory)).toEqual([]);
  });
});
