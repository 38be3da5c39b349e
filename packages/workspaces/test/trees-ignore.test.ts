import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PackReader } from '../src/trees/pack-reader.ts';
import { TreeDifference } from '../src/trees/tree-difference.ts';
import { TreeProgram } from '../src/trees/tree-program.ts';
import { parseTreeRoot } from '../src/trees/tree-root.ts';

const run = promisify(execFile);
let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-ignore-'));
});
afterAll(() => rm(home, { recursive: true, force: true }));

const files = [
  'a.log',
  'b.txt',
  'keep.log',
  'build/out',
  'build/deep/out',
  'src/build/x',
  'src/a.log',
  'src/keep.log',
  'src/main.c',
  'src/sub/main.c',
  'doc/frotz/x',
  'doc/a/frotz/x',
  'frotz/x',
  'foo/bar/baz',
  'foo/x/bar',
  'foo/x/y/bar',
  'abc/def/ghi',
  'temp1',
  'temp2',
  'tempA',
  'hello.[ch]',
  'hello.c',
  '#hash',
  '!bang',
  'trailing ',
  'back\\slash',
  '.hidden',
  'nested/one.tmp',
  'nested/two.tmp',
  'nested/deeper/one.tmp',
  'cache/x',
  'a/cache/x',
  'a/b/cache/x',
  'exact/path/file',
  'other/exact/path/file',
];

const rules: Readonly<Record<string, string>> = {
  '.jvsignore': [
    '# a comment',
    '',
    '*.log',
    '!keep.log',
    'build/',
    '/doc/frotz',
    'foo/**/bar',
    'abc/**',
    'temp[0-9]',
    'hello.\\[ch]',
    '\\#hash',
    '\\!bang',
    'trailing\\ ',
    'back\\\\slash',
    '**/cache',
    'exact/path/file',
    'src/*.c',
    '?hidden   ',
  ].join('\n'),
  'nested/.jvsignore': '*.tmp\n!/one.tmp\n',
  'src/.jvsignore': '!a.log\r\nkeep.log\r\n',
};

/** What git would not ignore, with the same rules under the name it knows. */
const byGit = async (directory: string): Promise<string[]> => {
  await run('git', ['init', '-q', directory]);
  await run('git', ['-C', directory, 'config', 'core.quotePath', 'false']);
  const args = ['-C', directory, 'ls-files', '-z', '--others', '--exclude-per-directory=.jvsignore'];
  const { stdout } = await run('git', args);
  await rm(join(directory, '.git'), { recursive: true });
  return stdout.split('\0').filter(Boolean).sort();
};

const byUs = async (directory: string): Promise<string[]> => {
  const control = join(home, 'control');
  for (const folder of ['packs', 'blobs', 'tmp']) await mkdir(join(control, folder), { recursive: true });
  const program = new TreeProgram();
  try {
    const { root } = await program.request<{ root: string }>('scan', {
      store: control,
      dir: directory,
      pack: '1'.repeat(16),
      keep: true,
    });
    using reader = new PackReader(control);
    const all = new TreeDifference(reader).between(undefined, parseTreeRoot(root));
    return [...all]
      .filter(({ type }) => type === 'f')
      .map(({ path }) => path)
      .sort();
  } finally {
    program.close();
  }
};

describe('.jvsignore', () => {
  test('ignores what git ignores by the same rules', async () => {
    const directory = join(home, 'payload');
    for (const [name, text] of [...files.map((name) => [name, 'x'] as const), ...Object.entries(rules)]) {
      await mkdir(dirname(join(directory, name)), { recursive: true });
      await writeFile(join(directory, name), text);
    }
    const expected = await byGit(directory);
    expect(expected.length).toBeLessThan(files.length);
    expect(await byUs(directory)).toEqual(expected);
  });
});
