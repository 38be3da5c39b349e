import { CoppiceError } from '@coppice/protocol';
import { Coppice } from '@coppice/sdk';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

describe('notes that agents share', () => {
  let home: CliHome;
  let coppice: Coppice;
  beforeAll(async () => {
    home = await CliHome.start();
    coppice = new Coppice({ home: home.home });
  });
  afterAll(async () => {
    coppice?.close();
    await home?.remove();
  });

  test('are written, read, found, moved and deleted through HTTP', async () => {
    const { notes } = coppice;
    expect(await notes.write('plans/today', '# Today\nwrite tests\n')).toEqual({
      path: 'plans/today',
      bytes: 20,
    });
    await notes.write('plans/today.md', 'read them\n', { mode: 'append' });
    expect(await notes.read('plans/today.md')).toEqual({
      path: 'plans/today.md',
      content: '# Today\nwrite tests\nread them\n',
    });
    expect((await notes.list()).map(({ path }) => path)).toEqual(['plans']);
    expect((await notes.list({ recursive: true })).map(({ path }) => path)).toEqual([
      'plans',
      'plans/today.md',
    ]);

    expect(
      await notes.changeFrontmatter('plans/today', { set: { owner: 'ada' }, add_tags: ['urgent'] }),
    ).toEqual({
      path: 'plans/today',
      frontmatter: { owner: 'ada', tags: ['urgent'] },
      tags: ['urgent'],
    });
    expect(await notes.tags()).toEqual(['urgent']);
    expect((await notes.read('plans/today', { format: 'json' })).frontmatter).toEqual({
      owner: 'ada',
      tags: ['urgent'],
    });
    expect(await notes.search('WRITE', { tag: 'urgent' })).toMatchObject({
      results: [{ path: 'plans/today.md', line: 'write tests' }],
      truncated: false,
    });
    expect((await notes.search('^read|^write', { regex: true, limit: 1 })).truncated).toBe(true);
    expect(await notes.replace('plans/today', 'tests', 'proofs')).toMatchObject({ replacements: 1 });
    await notes.write('taken', 'x');
    await expect(notes.move('plans/today', 'taken')).rejects.toMatchObject({ code: 'name_taken' });
    await notes.move('plans/today', 'taken', { overwrite: true });
    expect((await notes.read('taken')).content).toContain('write proofs');
    await notes.delete('taken');
    await expect(notes.read('taken')).rejects.toMatchObject({ code: 'not_found' });
    await expect(notes.read('../token')).rejects.toBeInstanceOf(CoppiceError);
    await expect(notes.search('(', { regex: true })).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  test('are not for the token of a sandbox', async () => {
    const sandbox = await coppice.sandboxes.create();
    const { url } = JSON.parse(await home.ok('status', '--json')) as { url: string };
    const inside = new Coppice({ url, token: sandbox.token! });
    await expect(inside.notes.list()).rejects.toMatchObject({ code: 'forbidden' });
    await expect(inside.notes.write('a', 'b')).rejects.toMatchObject({ code: 'forbidden' });
    inside.close();
    await sandbox.destroy();
  });

  test('`coppice notes` does the same at a shell', async () => {
    const written = await home.run(['notes', 'write', 'style.md'], { input: 'use tabs\n' });
    expect(written).toMatchObject({ code: 0, stdout: expect.stringContaining('wrote style.md') });
    await home.run(['notes', 'write', '--append', 'style'], { input: 'and be brief\n' });
    expect((await home.run(['notes', 'show', 'style.md'])).stdout).toBe('use tabs\nand be brief\n');
    expect(await home.ok('notes', 'search', 'brief')).toBe('style.md:2: and be brief');
    expect(await home.ok('notes', 'tag', 'style', '--add', 'team')).toBe('team');
    expect(await home.ok('notes', 'tag')).toBe('team');
    expect(await home.ok('notes', 'ls')).toContain('style.md');
    await home.ok('notes', 'mv', 'style', 'rules/style');
    await home.ok('notes', 'rm', 'rules/style.md');
    const gone = await home.run(['notes', 'show', 'style']);
    expect(gone.code).not.toBe(0);
    expect(gone.stderr).toMatch(/there is no note style\nhint: .*coppice notes ls/);
  });
});
