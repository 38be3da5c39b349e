import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CopyingEngine, createDiskStore, type DiskStore, openPool, PoolServer } from '@coppice/disks';

const programPath = fileURLToPath(new URL('../../native/build/coppice-pool', import.meta.url));

export interface OpenEngine {
  readonly store: DiskStore;
  readonly server: PoolServer;
  /** Ends this store and opens another on the same disks, as after a restart. */
  reopen(): Promise<OpenEngine>;
  purge(): Promise<void>;
}

const makeHome = (): Promise<string> => mkdtemp(join(tmpdir(), 'coppice-property-'));

const openBtrfs = async (home: string): Promise<OpenEngine> => {
  const pool = await openPool({ home, programPath, sizeBytes: 1024 ** 3 });
  const { server, engine, directory } = pool;
  const store = await createDiskStore({ server, engine, directory });
  return {
    store,
    server,
    reopen: async () => {
      await store.close();
      await pool.close();
      return openBtrfs(home);
    },
    purge: async () => {
      await store.close();
      await pool.purge();
      await rm(home, { recursive: true, force: true });
    },
  };
};

const openCopying = async (
  kind: 'reflink' | 'copy',
  directory: string,
  dispose: (server: PoolServer) => Promise<void>,
): Promise<OpenEngine> => {
  const server = new PoolServer({ programPath });
  const engine = new CopyingEngine(server, kind);
  const store = await createDiskStore({ server, engine, directory, enforceSize: false });
  return {
    store,
    server,
    reopen: async () => {
      await store.close();
      await server.close();
      return openCopying(kind, directory, dispose);
    },
    purge: async () => {
      await store.close();
      await dispose(server);
    },
  };
};

/** Every engine that a home may stand on, each on a real filesystem of its own. */
export const engines: Readonly<Record<string, () => Promise<OpenEngine>>> = {
  btrfs: async () => openBtrfs(await makeHome()),
  reflink: async () => {
    const home = await makeHome();
    const [image, directory] = [join(home, 'xfs.img'), join(home, 'xfs')];
    await writeFile(image, '');
    await truncate(image, 1024 ** 3);
    await promisify(execFile)('mkfs.xfs', ['-q', '-m', 'reflink=1', image]);
    await mkdir(directory);
    const mounter = new PoolServer({ programPath });
    await mounter.call('mount-image', image, directory, 'xfs', '');
    await mounter.close();
    return openCopying('reflink', directory, async (server) => {
      await server.call('unmount', directory);
      await server.close();
      await rm(home, { recursive: true, force: true });
    });
  },
  copy: async () => {
    const directory = await makeHome();
    return openCopying('copy', directory, async (server) => {
      await server.close();
      await rm(directory, { recursive: true, force: true });
    });
  },
};
