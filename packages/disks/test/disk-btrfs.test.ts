import { createDiskStore, openPool } from '@coppice/disks';
import { describeDiskStore } from '@coppice/testkit';
import { makeTemporaryDirectory, poolProgram, removeDirectory } from './pool-fixture.ts';

describeDiskStore('a btrfs pool', async () => {
  const home = await makeTemporaryDirectory();
  const options = { home, programPath: poolProgram, sizeBytes: 1024 ** 3 };
  let pool = await openPool(options);
  const open = () => createDiskStore({ server: pool.server, engine: pool.engine, directory: pool.directory });
  return {
    store: await open(),
    directory: pool.directory,
    reopen: async () => {
      await pool.close();
      pool = await openPool(options);
      return open();
    },
    dispose: async () => {
      await pool.purge();
      await removeDirectory(home);
    },
  };
});
