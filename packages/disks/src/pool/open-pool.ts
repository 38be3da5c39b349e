import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { PoolServer } from '../native/pool-server.ts';
import { DirectoryPool } from './directory-pool.ts';
import { exists } from './mount-table.ts';
import { LoopPool, type Pool, type PoolEngine, type PoolOptions } from './pool.ts';

/** What a home has stays what it is: an engine is chosen once, when there are no disks yet. */
export const openPool = async (options: PoolOptions): Promise<Pool> => {
  const home = await realpath(options.home);
  const server = new PoolServer({ programPath: options.programPath, lockFile: join(home, 'pool.lock') });
  const { engine: wanted = 'auto' } = options;
  try {
    const there = await engineIn(home);
    if (there !== undefined && wanted !== 'auto' && there !== wanted) throw otherEngine(home, there, wanted);
    return await open(home, server, options, there ?? wanted);
  } catch (error) {
    await server.close();
    throw error;
  }
};

const engineIn = async (home: string): Promise<PoolEngine | undefined> =>
  (await exists(join(home, 'pool.img'))) ? 'btrfs' : DirectoryPool.engineIn(home);

const open = async (
  home: string,
  server: PoolServer,
  options: PoolOptions,
  engine: PoolEngine | 'auto',
): Promise<Pool> => {
  if (engine === 'btrfs') return openLoop(home, server, options);
  if (engine === 'reflink' && (await DirectoryPool.bestIn(home, server)) !== 'reflink') {
    throw new CoppiceError('unsupported', `The filesystem of ${home} cannot share blocks between files.`, {
      hint: 'Put the home on xfs or btrfs, or set disks.engine to copy.',
    });
  }
  if (engine !== 'auto') return DirectoryPool.open(home, server, engine);
  try {
    return await openLoop(home, server, options);
  } catch (error) {
    if (!(error instanceof CoppiceError) || error.code !== 'unsupported') throw error;
    await LoopPool.discard(home);
    return DirectoryPool.open(home, server, await DirectoryPool.bestIn(home, server), error.message);
  }
};

const openLoop = async (home: string, server: PoolServer, options: PoolOptions): Promise<Pool> => {
  const pool = new LoopPool(home, server, options);
  await pool.mount();
  return pool;
};

const otherEngine = (home: string, there: PoolEngine, wanted: PoolEngine): CoppiceError =>
  new CoppiceError('wrong_state', `The disks of ${home} are kept by the engine ${there}, not by ${wanted}.`, {
    hint: `Set disks.engine to ${there} or auto. To change it: export what you want to keep, then coppice down --purge.`,
  });
