import { mkdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CopyingEngine, createDiskStore, PoolServer } from '@coppice/disks';
import { describeDiskStore, whyNotMountable } from '@coppice/testkit';
import { makeTemporaryDirectory, poolProgram, removeDirectory, run } from './pool-fixture.ts';

describeDiskStore(
  'xfs, by reflinks',
  async () => {
    const home = await makeTemporaryDirectory();
    const [image, directory] = [join(home, 'xfs.img'), join(home, 'xfs')];
    await writeFile(image, '');
    await truncate(image, 1024 ** 3);
    await run('mkfs.xfs', ['-q', '-m', 'reflink=1', image]);
    await mkdir(directory);
    const server = new PoolServer({ programPath: poolProgram });
    await server.call('mount-image', image, directory, 'xfs', '');
    const open = () =>
      createDiskStore({
        server,
        engine: new CopyingEngine(server, 'reflink'),
        directory,
        enforceSize: false,
      });
    return {
      store: await open(),
      directory,
      reopen: open,
      dispose: async () => {
        await server.call('unmount', directory);
        await server.close();
        await removeDirectory(home);
      },
    };
  },
  whyNotMountable('xfs'),
);
