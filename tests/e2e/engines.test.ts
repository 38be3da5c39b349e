import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { MountedFilesystem, RunningDaemon, skipFor, whyNotMountable } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const execute = promisify(execFile);

/** A home for each engine, on a filesystem that can do what the engine needs. */
describe.each([
  { engine: 'copy', filesystem: 'ext4' },
  { engine: 'reflink', filesystem: 'xfs' },
] as const)(
  'a home on $filesystem without btrfs',
  { ...skipFor(whyNotMountable('ext4') ?? whyNotMountable('xfs')) },
  ({ engine, filesystem }) => {
    let directory: string;
    let mounted: MountedFilesystem;
    let daemon: RunningDaemon;

    beforeAll(async () => {
      directory = await mkdtemp(join(tmpdir(), 'coppice-engines-'));
      mounted = await MountedFilesystem.create(filesystem, directory, 2 * 1024 ** 3);
      daemon = await RunningDaemon.start({ below: mounted.path, config: { disks: { engine } } });
    });
    afterAll(async () => {
      await daemon?.[Symbol.asyncDispose]();
      await mounted?.[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
    });

    const read = async (sandbox: { exec(argv: string[]): Promise<{ stdout: string }> }, path: string) =>
      (await sandbox.exec(['cat', path])).stdout;

    test('snapshots, restores, forks, compares and merges, and says which engine does it', async () => {
      const { client } = daemon;
      const sandbox = await client.sandboxes.create();
      await sandbox.files.write('/root/file', 'first');
      const snapshot = await sandbox.snapshot({ name: `${engine}-baseline` });
      expect(snapshot.engine).toBe(engine);
      await sandbox.files.write('/root/file', 'second');
      await sandbox.restore(snapshot.id);
      expect(await read(sandbox, '/root/file')).toBe('first');

      const [fork] = (await sandbox.fork()).sandboxes;
      if (fork === undefined) throw new Error('no fork was made');
      await fork.files.write('/root/new', 'from the fork');
      expect(await fork.exec(['sh', '-c', 'rm /root/file'])).toMatchObject({ exit_code: 0 });
      const { changes } = await client.diff(snapshot.id, fork.id);
      expect(changes.map(({ path, change }) => `${change} ${path}`)).toEqual(
        expect.arrayContaining(['added /root/new', 'removed /root/file']),
      );
      await sandbox.merge(fork.id);
      expect(await read(sandbox, '/root/new')).toBe('from the fork');
      await fork.destroy();
      await sandbox.destroy();
    });

    test('keeps everything over a kill of the daemon', async () => {
      const sandbox = await daemon.client.sandboxes.create({ name: 'survivor' });
      await sandbox.files.write('/root/file', 'kept');
      const snapshot = await sandbox.snapshot();
      await daemon.kill();
      await daemon.restart();
      expect(await read(sandbox, '/root/file')).toBe('kept');
      const { sandboxes } = await daemon.client.snapshots.fork(snapshot.id, { count: 2 });
      for (const fork of sandboxes) expect(await read(fork, '/root/file')).toBe('kept');
      for (const each of [...sandboxes, sandbox]) await each.destroy();
    });

    test('moves snapshots to a home on btrfs and back', async () => {
      await using other = await RunningDaemon.start();
      const sandbox = await daemon.client.sandboxes.create();
      await sandbox.files.write('/root/file', 'travels');
      const snapshot = await sandbox.snapshot();
      const there = await other.client.snapshots.import(daemon.client.snapshots.export(snapshot.id));
      const back = await daemon.client.snapshots.import(other.client.snapshots.export(there.id));
      expect(there.engine).toBe('btrfs');
      expect(back.engine).toBe(engine);
      const { sandboxes } = await daemon.client.snapshots.fork(back.id, { count: 1 });
      expect(await read(sandboxes[0]!, '/root/file')).toBe('travels');
      for (const each of [...sandboxes, sandbox]) await each.destroy();
    });

    test('refuses a size that it cannot hold a disk to, and doctor says what it cannot do', async () => {
      await expect(daemon.client.sandboxes.create({ disk_mb: 100 })).rejects.toMatchObject({
        code: 'unsupported',
        message: `the engine ${engine} cannot hold a disk to 100 MiB`,
      });
      const { findings } = await daemon.client.doctor();
      expect(findings).toContainEqual(expect.objectContaining({ check: 'engine', severity: 'warning' }));
    });

    test('has no filesystem of its own', async () => {
      expect(await readdir(daemon.home)).not.toContain('pool.img');
      const { stdout } = await execute('cat', ['/proc/self/mounts']);
      expect(stdout).not.toContain(` ${join(daemon.home, 'pool')} `);
    });
  },
);

describe('the engine of a home', () => {
  test('is chosen once: another one is refused with the way out', async () => {
    await using daemon = await RunningDaemon.start({ image: false, config: { disks: { engine: 'copy' } } });
    await daemon.stop();
    const config = { listen: { port: 0 }, warm_pool: 0, disks: { engine: 'btrfs' } };
    await writeFile(join(daemon.home, 'config.json'), JSON.stringify(config));
    const { code, stderr } = await daemon.run([]);
    expect(code).not.toBe(0);
    expect(stderr).toContain('are kept by the engine copy, not by btrfs');
    await writeFile(
      join(daemon.home, 'config.json'),
      JSON.stringify({ ...config, disks: { engine: 'auto' } }),
    );
    await daemon.restart();
    expect((await daemon.client.doctor()).engine).toBe('copy');
  });
});
