import { mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildHostRootfs, hostRootfsVersion } from '@coppice/runtime';

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
    await rename(building, shared);
  } catch (error) {
    await rm(building, { recursive: true, force: true });
    if (!(await exists(rootfs))) throw error;
  }
  return rootfs;
}

const exists = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined)) !== undefined;

/** What died while it was built, and what an earlier version of this checkout used: gigabytes, after a few of them. */
async function removeLeftovers(): Promise<void> {
  for (const name of await readdir(directory)) {
    const owner = /^\.building-(\d+)-/.exec(name)?.[1];
    const isAbandoned = owner !== undefined && !(await exists(`/proc/${owner}`));
    const isOutdated = /^host-v\d+$/.test(name) && name !== `host-v${hostRootfsVersion}`;
    if (isAbandoned || isOutdated) await rm(join(directory, name), { recursive: true, force: true });
  }
}
