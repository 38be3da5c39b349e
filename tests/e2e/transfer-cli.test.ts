import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Imported, Snapshot } from '@coppice/protocol';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

describe('coppice export and import', () => {
  let cli: CliHome;
  let snapshot: Snapshot;
  beforeAll(async () => {
    cli = await CliHome.start();
    await cli.ok('create', 'dev', '--env', 'KEY=hidden');
    await cli.ok('exec', 'dev', '--', 'sh', '-c', 'echo kept > /root/file');
    snapshot = await cli.json<Snapshot>('snapshot', 'dev', 'base');
  });
  afterAll(() => cli.remove());

  test('write a file that only its owner can read, say what is in it, and take it in again', async () => {
    expect(await cli.ok('export', 'dev:base')).toMatch(
      /^wrote dev-base\.coppice, [\d.]+ \w+: image tiny, files$/,
    );
    expect((await stat(join(cli.directory, 'dev-base.coppice'))).mode & 0o777).toBe(0o600);
    const said = await cli.ok('import', 'dev-base.coppice', '--name', 'moved');
    expect(said).toMatch(
      /^moved {2}sn_\w+ {2}files alone\nnot in the file: the values of KEY; give them with --env$/,
    );
    const [, id = ''] = said.split('  ');
    await cli.ok('fork', id, 'twig');
    expect(await cli.ok('exec', 'twig', '--', 'cat', '/root/file')).toBe('kept');
    expect(await cli.ok('tree')).toContain('moved');
    await cli.ok('rm', 'twig');
  });

  test('go through a pipe, and answer programs in JSON', async () => {
    const { bytes, code, stderr } = await cli.run([
      'export',
      snapshot.id,
      '--no-image',
      '--with-env',
      '-o',
      '-',
    ]);
    expect([code, stderr]).toEqual([0, '']);
    const { stdout } = await cli.run(['--json', 'import', '-'], { input: bytes });
    expect(JSON.parse(stdout) as Imported).toMatchObject({
      name: 'base',
      image_added: false,
      missing_env: [],
    });
    const written = await cli.json('export', snapshot.id, '--no-image', '-o', 'small.coppice');
    expect(written).toMatchObject({
      file: 'small.coppice',
      snapshot_id: snapshot.id,
      image: false,
      memory: false,
    });
  });

  test('leave no file when there is nothing to export, and say so when there is none to import', async () => {
    const before = await readdir(cli.directory);
    expect((await cli.run(['export', 'dev:never', '-o', 'never.coppice'])).code).toBe(5);
    const missing = await cli.run(['import', 'never.coppice']);
    expect([missing.code, missing.stderr]).toEqual([
      5,
      expect.stringContaining('never.coppice does not exist'),
    ]);
    const folder = await cli.run(['import', '.']);
    expect([folder.code, folder.stderr]).toEqual([2, expect.stringContaining('. is no file')]);
    expect((await cli.run(['import', '-'], { input: 'not one' })).stderr).toContain(
      'not a file that `coppice export` wrote',
    );
    expect(await readdir(cli.directory)).toEqual(before);
  });
});
