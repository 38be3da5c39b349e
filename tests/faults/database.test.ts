import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually, RunningDaemon, SmallDisk } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CliHome } from '../e2e/cli-home.ts';

describe('a database that is behind', () => {
  let daemon: RunningDaemon;

  beforeEach(async () => {
    daemon = await RunningDaemon.start();
  });
  afterEach(() => daemon[Symbol.asyncDispose]());

  const database = (): string => join(daemon.home, 'coppice.db');

  /** The database goes back to how it was when `before` was done, as if all that it had written since were lost. */
  async function goBack(before: () => Promise<void>, after: () => Promise<void>): Promise<void> {
    await before();
    await daemon.stop();
    copyFileSync(database(), `${database()}.kept`);
    await daemon.restart();
    await after();
    await daemon.kill('SIGKILL');
    for (const suffix of ['-wal', '-shm']) rmSync(`${database()}${suffix}`, { force: true });
    copyFileSync(`${database()}.kept`, database());
    await daemon.restart();
    await eventually('it has swept', async () => (await daemon.client.doctor()).findings.length > 0);
  }

  test('deletes nothing that is newer: it is set aside, named by the doctor, and can be brought back', async () => {
    const names = { young: '', snapshot: '' };
    await goBack(
      async () => {
        const old = await daemon.client.sandboxes.create({ name: 'old' });
        await old.exec('echo old > /root/file');
      },
      async () => {
        const young = await daemon.client.sandboxes.create({ name: 'young' });
        await young.exec('echo young > /root/file');
        names.young = young.id;
        names.snapshot = (await daemon.client.sandboxes.at('old').snapshot({ name: 'late' })).id;
      },
    );
    const old = daemon.client.sandboxes.at('old');
    expect((await old.exec('cat /root/file')).stdout).toBe('old\n');
    expect((await daemon.client.sandboxes.list()).map(({ name }) => name)).toEqual(['old']);

    const strays = await daemon.client.strays.list();
    expect(strays.map(({ id, kind }) => [id, kind])).toEqual([
      [names.young, 'sandbox'],
      [names.snapshot, 'snapshot'],
    ]);
    for (const id of [names.young, names.snapshot])
      expect((await daemon.client.doctor()).findings).toContainEqual(
        expect.objectContaining({
          severity: 'warning',
          message: expect.stringContaining(id),
          fix: expect.stringContaining(`coppice strays --keep ${id}`),
        }),
      );

    const kept = await daemon.client.strays.keep(names.young, { name: 'back' });
    const { sandboxes } = await daemon.client.snapshots.fork(kept.id);
    expect((await sandboxes[0]!.exec('cat /root/file')).stdout).toBe('young\n');
    await daemon.client.strays.delete(names.snapshot);
    expect(await daemon.client.strays.list()).toEqual([]);
    expect(readdirSync(join(daemon.home, 'pool/strays'))).toEqual([]);
    await expect(daemon.client.strays.keep(names.snapshot)).rejects.toMatchObject({ code: 'not_found' });
    await daemon.restart();
    expect((await daemon.client.snapshots.list()).map(({ name }) => name)).toContain('back');
  });

  test('that is gone altogether keeps every disk and snapshot that holds something', async () => {
    const sandbox = await daemon.client.sandboxes.create({ name: 'kept' });
    await sandbox.exec('echo kept > /root/file');
    const snapshot = await sandbox.snapshot();
    const empty = await daemon.client.sandboxes.create({ name: 'empty' });
    await daemon.kill('SIGKILL');
    for (const suffix of ['', '-wal', '-shm', '.backup']) rmSync(`${database()}${suffix}`, { force: true });
    await daemon.restart();
    await eventually('all is swept', async () => daemon.traces.disks().length === 0);
    const strays = await daemon.client.strays.list();
    expect(strays.map(({ id }) => id)).toEqual([sandbox.id, snapshot.id]);
    expect(daemon.traces.machines()).not.toContain(empty.id);
  });

  test('names a sandbox whose disk is not there any more, instead of starting it on nothing', async () => {
    let gone = '';
    await goBack(
      async () => {
        gone = (await daemon.client.sandboxes.create({ name: 'gone' })).id;
      },
      async () => {
        await daemon.client.sandboxes.at(gone).destroy();
      },
    );
    const sandbox = daemon.client.sandboxes.at(gone);
    await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
    expect((await sandbox.inspect()).failure).toContain('disk');
    await expect(sandbox.start()).rejects.toMatchObject({ code: 'not_found' });
    await sandbox.destroy();
  });
});

test("what was kept warm when the daemon was killed is nobody's, and is not set aside", async () => {
  await using daemon = await RunningDaemon.start({ config: { warm_pool: 2 } });
  await eventually('two are warm', () => daemon.traces.machines().length === 2);
  const warm = daemon.traces.disks();
  await daemon.kill('SIGKILL');
  await daemon.restart();
  await eventually('others are warm', () => {
    const disks = daemon.traces.disks();
    return disks.length === 2 && !disks.some((id) => warm.includes(id));
  });
  expect(await daemon.client.strays.list()).toEqual([]);
});

describe('a database that cannot be used', () => {
  let cli: CliHome;

  beforeEach(async () => {
    cli = await CliHome.start();
  });
  afterEach(() => cli.remove());

  const damage = (): void => {
    const file = join(cli.home, 'coppice.db');
    const sizeBytes = statSync(file).size;
    writeFileSync(file, Buffer.alloc(sizeBytes, 0x5a));
  };

  test('because it is damaged: `up` says the command that goes back to the backup, and that command works', async () => {
    await cli.ok('create', 'steady');
    await cli.ok('exec', 'steady', '--', 'sh', '-c', 'echo kept > /root/kept');
    expect((await cli.run(['up', '--restore-backup'])).code).toBe(7);
    await cli.ok('down');
    damage();
    const { code, stderr } = await cli.run(['up', '--detach']);
    expect(code).toBe(71);
    expect(stderr).toContain('coppice up --restore-backup');
    expect(stderr).not.toMatch(/^\s+at /m);
    const said = await cli.ok('up', '--detach', '--restore-backup');
    expect(said).toContain('The database is the backup of');
    expect(await cli.ok('exec', 'steady', '--', 'cat', '/root/kept')).toBe('kept');
  });

  test('because there is no backup to go back to: nothing is moved away', async () => {
    await cli.ok('down');
    rmSync(join(cli.home, 'coppice.db.backup'));
    const before = readFileSync(join(cli.home, 'coppice.db'));
    const { code, stderr } = await cli.run(['up', '--detach', '--restore-backup']);
    expect(code).toBe(5);
    expect(stderr).toContain('no backup');
    expect(readFileSync(join(cli.home, 'coppice.db'))).toEqual(before);
    await cli.ok('up', '--detach');
  });

  test('because it cannot be written: `up` says so and what to look at, without a stack trace', async ({
    skip,
  }) => {
    await cli.ok('down');
    const files = ['coppice.db', 'token'].map((name) => join(cli.home, name));
    try {
      execFileSync('chattr', ['+i', ...files], { stdio: 'ignore' });
    } catch {
      skip('the filesystem below the temporary directory cannot make a file immutable');
    }
    try {
      const { code, stderr } = await cli.run(['up', '--detach']);
      expect(code).toBe(4);
      expect(stderr).toContain('coppice.db');
      expect(stderr).toContain('lsattr');
      expect(stderr).not.toMatch(/^\s+at /m);
    } finally {
      execFileSync('chattr', ['-i', ...files]);
    }
    await cli.ok('up', '--detach');
  });
});

test('a home on a disk that is mounted read-only is refused with what to do, without a stack trace', async () => {
  using disk = SmallDisk.make(64);
  const home = join(disk.directory, 'home');
  mkdirSync(home);
  disk.remountReadOnly();
  const program = join(import.meta.dirname, '../../packages/daemon/src/main.ts');
  const { status, stderr } = spawnSync(process.execPath, [program, '--home', home], { encoding: 'utf8' });
  expect(status).toBe(7);
  expect(stderr).toMatch(/^coppice-daemon: the home cannot be written/);
  expect(stderr).toContain('read-only');
  expect(stderr).not.toMatch(/^\s+at /m);
});

test('the exit code of `doctor` tells errors, warnings and neither apart', async () => {
  const cli = await CliHome.start();
  try {
    const worst = async (): Promise<string> => {
      const { findings } = JSON.parse((await cli.run(['doctor', '--json'])).stdout);
      const found = new Set(findings.map(({ severity }: { severity: string }) => severity));
      return ['error', 'warning'].find((severity) => found.has(severity)) ?? 'none';
    };
    const codes: Record<string, number> = { error: 1, warning: 20, none: 0 };
    expect((await cli.run(['doctor'])).code).toBe(codes[await worst()]);
    await cli.ok('create', 'mortal');
    const { id } = await cli.json<{ id: string }>('info', 'mortal');
    const record = JSON.parse(readFileSync(join(cli.home, 'run', id, 'machine.json'), 'utf8'));
    process.kill(record.init.pid, 'SIGKILL');
    await eventually('it has failed', async () => (await cli.json('info', 'mortal')).state === 'failed');
    expect(await worst()).toBe('warning');
    expect((await cli.run(['doctor'])).code).toBe(20);
    await cli.ok('down');
    expect((await cli.run(['doctor'])).code).toBe(1);
  } finally {
    await cli.remove();
  }
});
