import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { mkdtemp, readdir, readFile, realpath, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { describe, expect, test } from 'vitest';

/**
 * What earlier versions wrote, one folder each. A version that changes a format adds a folder made by the version before
 * it and leaves the others as they are: docs/formats.md says how.
 */
const versions = join(import.meta.dirname, 'formats');
const written = await readdir(versions);
const execute = promisify(execFile);

const unpack = async (archive: string, into: string): Promise<void> => {
  await execute('tar', ['-xzSf', archive, '-C', into, '--no-same-owner']);
};

describe.each(written)('what version %s wrote', (version) => {
  const fixture = (name: string): string => join(versions, version, name);

  test('a home comes up with its sandboxes, snapshots and settings', async () => {
    await using daemon = await RunningDaemon.start({
      image: false,
      prepare: async (home) => {
        await unpack(fixture('home.tar.gz'), home);
        for (const name of await readdir(join(home, 'home')))
          if (name !== 'config.json') await rename(join(home, 'home', name), join(home, name));
        await rm(join(home, 'home'), { recursive: true });
      },
    });
    const { client } = daemon;
    const [dev, left] = await Promise.all([client.sandboxes.get('dev'), client.sandboxes.get('left')]);
    expect(await dev.inspect()).toMatchObject({
      state: 'stopped',
      labels: { team: 'blue' },
      network: { allow: ['198.51.100.1'] },
    });
    expect(await dev.ports.list()).toMatchObject([{ guest_port: 8080 }]);
    expect((await client.tokens.list()).map(({ name }) => name)).toContain('reader');
    expect(await client.snapshots.get('dev:baseline')).toMatchObject({
      note: 'as shipped',
      tags: ['release'],
    });
    expect((await client.lineage()).map(({ name }) => name)).toEqual(
      expect.arrayContaining(['bare', 'dev', 'baseline', 'left']),
    );
    expect((await client.events.list({ after: 0, limit: 1000 })).events.length).toBeGreaterThan(5);

    await Promise.all([dev.start(), left.start()]);
    expect(await dev.files.readText('/root/said')).toBe('kept');
    expect(await left.files.readText('/root/new')).toBe('of left');
    await dev.files.write('/root/said', 'broken');
    await dev.restore('baseline');
    expect(await dev.files.readText('/root/said')).toBe('kept');
    const { sandboxes } = await client.snapshots.fork('dev:baseline');
    expect(await sandboxes[0]!.files.readText('/root/said')).toBe('kept');
  });

  test('an exported snapshot is taken in', async () => {
    await using daemon = await RunningDaemon.start({ image: false });
    const { client } = daemon;
    const { id } = await client.snapshots.import(createReadStream(fixture('snapshot.export')));
    const { sandboxes } = await client.snapshots.fork(id);
    expect(await sandboxes[0]!.files.readText('/root/said')).toBe('kept');
  });

  test('a workspace is verified, restored and added to', async () => {
    const directory = await realpath(await mkdtemp(join(tmpdir(), 'formats-')));
    const jvs = async (worktree: string, ...args: string[]) =>
      (
        await execute(join(import.meta.dirname, '../../bin/jvs'), args, {
          cwd: join(directory, 'ws', worktree),
        })
      ).stdout;
    try {
      await unpack(fixture('workspace.tar.gz'), directory);
      await jvs('main', 'verify', '--all');
      await jvs('main', 'restore', 'v1');
      expect(await readFile(join(directory, 'ws/main/src/b'), 'utf8')).toBe('one\n');
      await jvs('worktrees/side/main', 'restore', 'second');
      expect(await readFile(join(directory, 'ws/worktrees/side/main/src/b'), 'utf8')).toBe('two\n');
      await jvs('worktrees/side/main', 'snapshot', 'third');
      await jvs('main', 'verify', '--all');
      const history = JSON.parse(await jvs('main', 'history', '--json', '--all')) as unknown;
      expect(JSON.stringify(history)).toMatch(/"third".*"second".*"first"/s);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});
