import { CopyingEngine, createDiskStore, PoolServer } from '@coppice/disks';
import { describeDiskStore } from '@coppice/testkit';
import { makeTemporaryDirectory, poolProgram, removeDirectory } from './pool-fixture.ts';

describeDiskStore('any filesystem, by copying', async () => {
  const directory = await makeTemporaryDirectory();
  const server = new PoolServer({ programPath: poolProgram });
  const open = () =>
    createDiskStore({ server, engine: new CopyingEngine(server, 'copy'), directory, enforceSize: false });
  return {
    store: await open(),
    directory,
    reopen: open,
    dispose: async () => {
      await server.close();
      await removeDirectory(directory);
    },
  };
});
