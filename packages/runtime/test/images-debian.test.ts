import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { IdSource } from '@coppice/protocol';
import { expect, it } from 'vitest';
import { ImageStore } from '../src/images/image-store.ts';

/** Fetches a hundred packages from a Debian archive, so it runs only where that is asked for. */
const asked = process.env.COPPICE_TEST_DEBIAN === '1';

it('without the program that builds them, Debian images are refused with what to install', async ({
  skip,
}) => {
  skip(existsSync('/usr/bin/mmdebstrap'), 'mmdebstrap is installed here');
  const directory = await mkdtemp(join(tmpdir(), 'coppice-debian-'));
  const ids = new IdSource();
  const images = await ImageStore.open({ directory, newId: () => ids.next('image'), now: () => new Date() });
  try {
    await expect(images.ensure('debian:bookworm')).rejects.toMatchObject({
      code: 'unsupported',
      hint: expect.stringContaining('apt-get install mmdebstrap'),
    });
    expect(await images.list()).toEqual([]);
    expect(await readdir(directory)).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

it('a Debian image is built from the archive that apt uses, with a user', {
  timeout: 900_000,
}, async (context) => {
  context.skip(!asked, 'fetching a hundred packages is asked for with COPPICE_TEST_DEBIAN=1');
  const directory = await mkdtemp(join(tmpdir(), 'coppice-debian-'));
  try {
    const ids = new IdSource();
    const images = await ImageStore.open({
      directory,
      newId: () => ids.next('image'),
      now: () => new Date(),
    });
    const [image, same] = await Promise.all([
      images.ensure('debian:bookworm'),
      images.ensure('debian:bookworm'),
    ]);
    expect(same.id).toBe(image.id);
    expect(image).toMatchObject({ name: 'debian:bookworm', source: { kind: 'debian', suite: 'bookworm' } });
    const rootfs = images.rootfs(image.id);
    expect(await readFile(join(rootfs, 'etc/passwd'), 'utf8')).toContain('user:x:1000:1000');
    expect(await readlink(join(rootfs, 'etc/hostname'))).toBe('/proc/sys/kernel/hostname');
    expect(await readdir(join(rootfs, 'dev'))).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
