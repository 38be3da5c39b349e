import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { IdSource } from '@coppice/protocol';
import {
  buildHostRootfs,
  hostRootfsVersion,
  ImageStore,
  type Manifest,
  readManifest,
} from '@coppice/runtime';

const directory = fileURLToPath(new URL('../../../.tools/test-images', import.meta.url));

/**
 * The root filesystem of a `host` image, made once per checkout and shared by all tests, which only read it. Test
 * processes may build it at the same time: each builds a directory of its own, and the first to rename it wins.
 */
export async function sharedHostRootfs(): Promise<string> {
  const shared = join(directory, `host-v${hostRootfsVersion}`);
  const rootfs = join(shared, 'rootfs');
  if (await exists(rootfs)) return rootfs;
  await mkdir(directory, { recursive: true });
  await removeLeftovers();
  const building = await mkdtemp(join(directory, `.building-${process.pid}-`));
  try {
    await mkdir(join(building, 'rootfs'));
    await buildHostRootfs(join(building, 'rootfs'));
    const manifest = await readManifest(join(building, 'rootfs'), { content: false });
    await writeFile(join(building, 'manifest.json'), JSON.stringify(manifest));
    await rename(building, shared);
  } catch (error) {
    await rm(building, { recursive: true, force: true });
    if (!(await exists(rootfs))) throw error;
  }
  return rootfs;
}

/** Gives a home the image `host` at once, by a link to the shared one. Call it before a daemon opens the home. */
export async function linkHostImage(home: string): Promise<void> {
  const rootfs = await sharedHostRootfs();
  const manifest = JSON.parse(await readFile(join(rootfs, '../manifest.json'), 'utf8')) as Manifest;
  const ids = new IdSource();
  const images = await ImageStore.open({
    directory: join(home, 'images'),
    newId: () => ids.next('image'),
    now: () => new Date(),
  });
  await images.link('host', rootfs, { manifest });
}

const exists = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined)) !== undefined;

async function removeLeftovers(): Promise<void> {
  for (const name of await readdir(directory)) {
    const owner = /^\.building-(\d+)-/.exec(name)?.[1];
    if (owner === undefined || (await exists(`/proc/${owner}`))) continue;
    await rm(join(directory, name), { recursive: true, force: true });
  }
}
