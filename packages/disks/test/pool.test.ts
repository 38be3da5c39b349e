import { spawn } from 'node:child_process';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createDiskStore, openPool, type Pool, PoolServer } from '@coppice/disks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { makeTemporaryDirectory, poolProgram, removeDirectory, run } from './pool-fixture.ts';

const mebibyte = 1024 ** 2;

const mountsUnder = async (directory: string): Promise<string[]> =>
  (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line.includes(directory));

const loopsOf = async (directory: string): Promise<string[]> =>
  (await run('losetup', ['--list', '--noheadings', '--output', 'NAME,BACK-FILE'])).stdout
    .split('\n')
    .filter((line) => line.includes(directory));

describe('the pool of a home', () => {
  let home: string;
  const pools: Pool[] = [];
  const open = async (options: { growBelowBytes?: number; sizeBytes?: number } = {}): Promise<Pool> => {
    const pool = await openPool({ home, programPath: poolProgram, sizeBytes: 512 * mebibyte, ...options });
    pools.push(pool);
    return pool;
  };

  beforeEach(async () => {
    home = await makeTemporaryDirectory();
  });
  afterEach(async () => {
    for (const pool of pools.splice(0)) await pool.close();
    if ((await mountsUnder(home)).length > 0 || (await readdir(home)).includes('pool.img')) {
      await (await openPool({ home, programPath: poolProgram })).purge();
    }
    await removeDirectory(home);
  });

  it('is made, mounted, and purged without a trace', async () => {
    const pool = await open();
    expect(await mountsUnder(home)).toHaveLength(1);
    expect(await loopsOf(home)).toHaveLength(1);
    await pool.purge();
    expect(await mountsUnder(home)).toEqual([]);
    expect(await loopsOf(home)).toEqual([]);
    expect(await readdir(home)).toEqual([]);
  });

  it('is sparse: it takes only what is in it, and room for its metadata', async () => {
    await open();
    const { size, blocks } = await stat(join(home, 'pool.img'));
    expect(size).toBe(512 * mebibyte);
    expect(blocks * 512).toBeLessThan(128 * mebibyte);
  });

  it('keeps its content while it is unmounted', async () => {
    const pool = await open();
    await writeFile(join(pool.directory, 'kept'), 'yes');
    await pool.unmount();
    expect(await mountsUnder(home)).toEqual([]);
    expect(await loopsOf(home)).toEqual([]);
    const again = await open();
    expect(await readFile(join(again.directory, 'kept'), 'utf8')).toBe('yes');
  });

  it('is taken over as it stands after its daemon was killed', async () => {
    const pool = await open();
    await writeFile(join(pool.directory, 'kept'), 'yes');
    await pool.close();
    expect(await mountsUnder(home)).toHaveLength(1);
    const again = await open();
    expect(await mountsUnder(home)).toHaveLength(1);
    expect(await loopsOf(home)).toHaveLength(1);
    expect(await readFile(join(again.directory, 'kept'), 'utf8')).toBe('yes');
  });

  it('uses a loop device again that still holds its image', async () => {
    const pool = await open();
    await writeFile(join(pool.directory, 'kept'), 'yes');
    await pool.unmount();
    const device = (await run('losetup', ['--find', '--show', join(home, 'pool.img')])).stdout.trim();
    try {
      const again = await open();
      expect(await loopsOf(home)).toHaveLength(1);
      expect(await readFile(join(again.directory, 'kept'), 'utf8')).toBe('yes');
    } finally {
      await run('losetup', ['--detach', device]);
    }
  });

  it('can lie on btrfs itself, where its image is not copied on write', async () => {
    const outer = await open({ sizeBytes: 1024 * mebibyte });
    const inside = join(outer.directory, 'home');
    await mkdir(inside);
    const inner = await openPool({ home: inside, programPath: poolProgram, sizeBytes: 256 * mebibyte });
    try {
      expect((await run('lsattr', [join(inside, 'pool.img')])).stdout.split(' ')[0]).toContain('C');
    } finally {
      await inner.purge();
    }
  });

  it('starts anew when making the image was interrupted', async () => {
    await writeFile(join(home, 'pool.img.new'), 'half');
    await open();
    expect((await readdir(home)).sort()).toEqual(['pool', 'pool.img', 'pool.lock']);
  });

  it('is not opened twice at once', async () => {
    const pool = await open();
    const second = new PoolServer({
      programPath: poolProgram,
      lockFile: join(home, 'pool.lock'),
      lockWaitMs: 50,
    });
    await expect(second.call('probe', home)).rejects.toMatchObject({ code: 'in_use' });
    await second.close();
    await writeFile(join(pool.directory, 'still'), 'works');
  });

  it('refuses a mount point that something else has', async () => {
    await mkdir(join(home, 'pool'));
    await run('mount', ['-t', 'tmpfs', 'tmpfs', join(home, 'pool')]);
    try {
      await expect(open()).rejects.toMatchObject({ code: 'wrong_state' });
    } finally {
      await run('umount', [join(home, 'pool')]);
    }
  });

  it('says what is missing when the helper program is not there', async () => {
    await expect(openPool({ home, programPath: join(home, 'absent') })).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it('grows when little is free, and not before', async () => {
    const pool = await open({ growBelowBytes: 1 });
    expect(await pool.grow()).toBe(false);
    await pool.close();
    const eager = await open({ growBelowBytes: 1024 * mebibyte });
    const before = await eager.space.freeBytes();
    expect(await eager.grow()).toBe(true);
    expect((await stat(join(home, 'pool.img'))).size).toBe(1024 * mebibyte);
    expect(await eager.space.freeBytes()).toBeGreaterThan(before);
  });

  it('is let go by processes that copied its mount into their own namespace', async () => {
    const pool = await open();
    const holder = spawn('sh', [
      '-c',
      'exec unshare --mount --propagation private sh -c "echo ready; exec sleep 1000"',
    ]);
    try {
      await new Promise((ready) => holder.stdout.once('data', ready));
      await pool.purge();
      expect(await loopsOf(home)).toEqual([]);
    } finally {
      holder.kill('SIGKILL');
      await new Promise((ended) =>
        holder.exitCode === null && holder.signalCode === null ? holder.once('exit', ended) : ended(null),
      );
    }
  });

  it('deletes subvolumes that hold others', async () => {
    const pool = await open();
    const outer = join(pool.directory, 'outer');
    await pool.engine.create(outer);
    await mkdir(join(outer, 'a'));
    await pool.engine.create(join(outer, 'a', 'inner'));
    await writeFile(join(outer, 'a', 'inner', 'file'), 'x');
    await pool.engine.remove(outer);
    expect(await readdir(pool.directory)).toEqual([]);
  });

  it('rejects the calls under way when its program dies, starts another, and answers again', async () => {
    const server = new PoolServer({ programPath: poolProgram });
    await server.call('probe', home);
    const { stdout } = await run('pgrep', ['--parent', String(process.pid), '--full', 'coppice-pool serve$']);
    const pending = expect(server.call('measure', '/usr', 'plain')).rejects.toMatchObject({
      code: 'unavailable',
    });
    for (const pid of stdout.trim().split('\n')) process.kill(Number(pid), 'SIGKILL');
    await pending;
    expect(server.trouble).toContain('helper program');
    await server.call('probe', home);
    expect(server.trouble).toBeUndefined();
    await server.close();
  });

  it('removes what was being deleted when the machine stopped', async () => {
    const pool = await open();
    const open_ = () =>
      createDiskStore({ server: pool.server, engine: pool.engine, directory: pool.directory });
    await open_();
    const bin = join(pool.directory, 'disks', '.bin.1.1');
    await mkdir(bin);
    await pool.engine.create(join(bin, 'tree'));
    await writeFile(join(bin, 'tree', 'file'), 'x');
    await open_();
    expect(await readdir(join(pool.directory, 'disks'))).toEqual([]);
  });

  it('is made of plain directories where no btrfs can be made, and stays so', async () => {
    vi.stubEnv('PATH', home);
    const without = await openPool({ home, programPath: poolProgram });
    vi.unstubAllEnvs();
    expect(without.engine.name).not.toBe('btrfs');
    expect(without.fallback).toBe('mkfs.btrfs is not installed, so no pool can be made.');
    await writeFile(join(without.directory, 'file'), 'x');
    await without.close();
    const again = await openPool({ home, programPath: poolProgram });
    expect(again.engine.name).toBe(without.engine.name);
    expect(await readdir(again.directory)).toContain('file');
    await again.purge();
    expect(await readdir(home)).not.toContain('pool');
  });

  it('is not taken for an empty one where its filesystem cannot be mounted', async () => {
    await writeFile(join(home, 'pool.img'), 'not a filesystem');
    await expect(openPool({ home, programPath: poolProgram })).rejects.toThrow();
    expect(await readFile(join(home, 'pool.img'), 'utf8')).toBe('not a filesystem');
    await rm(join(home, 'pool.img'));
  });
});
