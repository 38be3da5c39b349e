import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { JvsFixture } from './jvs-fixture.ts';

let jvs: JvsFixture;
beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(async () => {
  await jvs[Symbol.asyncDispose]();
});

/** Each pattern has these to match. */
const paths = [
  ...[
    'a',
    'b',
    'B',
    'abab',
    'a1B',
    '5',
    '-',
    '[',
    ']',
    '\\',
    '^',
    '!',
    '#',
    ' ',
    'é',
    'a]b',
    'a-b',
    '[ab]',
    'x\\',
    'sp ',
  ],
  ...['x/a', 'x/y/ab', 'x/y/z/a', 'ab.d/x/a', 'y/x/b'],
];

const chosen = [
  // Stars, question marks, double stars.
  ...[
    '*',
    '?',
    '??',
    '*b',
    'a*',
    '*a*b',
    '*ab',
    '**',
    '***',
    '*a**',
    '**b',
    'a**b',
    '*/a',
    'x/*',
    'x/**',
    '/**/a',
    '**/a',
  ],
  ...[
    '**/x',
    '**/x/**',
    '**/y/a',
    'x/**/a',
    'x/**/**/a',
    'x/**/y/**/a',
    '**/**/a',
    '***/a',
    'x/***/a',
    '*x**/a',
    '**x/a',
  ],
  ...[
    '*/*',
    '*/*/*',
    '**/*/*',
    'x/*/a',
    'x?a',
    'x[/]a',
    'x[^z]a',
    'x\\/a',
    '**/*a*b',
    '**/a*',
    'x/**a',
    '/*',
    '/**',
  ],
  // Directories, anchors, negation, comments, spaces.
  ...[
    'x/',
    '/x/',
    '*/',
    'x//',
    '/',
    '//',
    '//a',
    'y/x/',
    'ab.d',
    '/a',
    '/x/a',
    'x/a/',
    '\\!',
    '!a',
    '#',
    '\\#',
    ' ',
    '\\ ',
  ],
  ...['sp', 'sp ', 'sp\\ ', 'sp\\  ', 'x\\', 'x\\\\', 'x\\\\ ', '\\', '\\\\', 'a\r', 'a \r'],
  // Classes.
  ...[
    '[ab]',
    '[!ab]',
    '[^ab]',
    '[]]',
    '[!]]',
    '[]-]',
    '[]a-]',
    '[-]',
    '[--5]',
    '[a-]',
    '[a-]b]',
    '[!a-b]',
    '[b-a]',
  ],
  ...[
    '[a-b-5]',
    '[\\]]',
    '[\\\\]',
    '[\\-a]',
    '[\\1-\\9]',
    '[[-\\]]',
    '[A-\\\\]',
    '[^]',
    '[!',
    '[',
    '[a',
    '[a-',
    '[]',
    'a[]b',
    '[\\',
  ],
  ...[
    '[[]ab]',
    '\\[ab]',
    '[[:]ab]',
    '[[::]ab]',
    '[[:digit]ab]',
    '[[:digit:]]',
    '[[:nothing:]5]',
    '[^[:alnum:]]',
  ],
  ...[
    '[[:upper:]]',
    '[[:lower:][:digit:]]',
    '[[:punct:]]',
    '[[:alpha:]][[:digit:]][[:upper:]]',
    '[a-[:digit:]]',
    '[[:space:]]',
  ],
  ...[
    '[[:blank:]]',
    '[[:cntrl:]]',
    '[[:graph:]]',
    '[[:print:]]',
    '[[:xdigit:]]',
    '[[:alpha:]',
    '[[:alpha',
    '?[]-]?',
    '*[!a]',
  ],
];

/** The same ones in every run. */
const made = (count: number): string[] => {
  let state = 7;
  const next = (below: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 16) % below;
  };
  const parts = [
    'a',
    'b',
    'x',
    'y',
    '*',
    '*',
    '**',
    '/',
    '/',
    '?',
    '[ab]',
    '[!a]',
    '[a-x]',
    '\\',
    ']',
    '-',
    '[',
    '[[:alpha:]]',
  ];
  const patterns = Array.from({ length: count }, () =>
    Array.from({ length: 1 + next(8) }, () => parts[next(parts.length)]).join(''),
  );
  // Git takes x**/a for x/**/a and **\/a for **/*/a, against its documentation.
  return patterns.filter((pattern) => !/^[^*?[\\]*[^*?[\\/]\*\*|\*\*\\/.test(pattern));
};

describe('.jvsignore', () => {
  test('leaves out what git leaves out by the same patterns', async () => {
    const cwd = await jvs.workspace('as-git');
    const patterns = [...chosen, ...made(120)];
    for (const [index, pattern] of patterns.entries()) {
      const at = join(cwd, String(index));
      for (const folder of new Set(paths.map((path) => dirname(path))))
        await mkdir(join(at, folder), { recursive: true });
      await Promise.all([
        writeFile(join(at, '.jvsignore'), `${pattern}\n!.jvsignore\n`),
        ...paths.map((path) => writeFile(join(at, path), '')),
      ]);
    }
    await jvs.ok(['snapshot', 'all'], { cwd });
    await jvs.ok(['worktree', 'fork', 'kept'], { cwd });
    const lists = [
      'git init -q ../git && git --git-dir ../git/.git --work-tree . ls-files -z --others --exclude-per-directory=.jvsignore',
      "cd ../worktrees/kept/main && find . -type f -printf '%P\\0'",
    ];
    const [byGit, byJvs] = await Promise.all(
      lists.map(async (list) => new Set((await jvs.bash(list, { cwd })).stdout.split('\0').filter(Boolean))),
    );
    expect(byGit?.size).toBeGreaterThan(patterns.length);
    const left = (kept: Set<string> | undefined): Record<string, string[]> =>
      Object.fromEntries(
        patterns.map((pattern, index) => [pattern, paths.filter((path) => kept?.has(`${index}/${path}`))]),
      );
    expect(left(byJvs)).toEqual(left(byGit));
  });

  test('with many stars is matched in good time', async () => {
    const cwd = await jvs.workspace('many-stars');
    const deep = Array.from({ length: 60 }, () => 'a').join('/');
    await mkdir(join(cwd, deep), { recursive: true });
    await writeFile(join(cwd, 'a'.repeat(200)), '');
    await writeFile(join(cwd, deep, 'c'), '');
    const patterns = [
      `${'*a'.repeat(60)}b`,
      `${'**/a/'.repeat(25)}b`,
      `${'**/*a*a/'.repeat(25)}b`,
      `${'a*'.repeat(90)}?b`,
    ];
    await writeFile(join(cwd, '.jvsignore'), `${patterns.join('\n')}\n`);
    await jvs.ok(['snapshot', 'all'], { cwd });
    await jvs.ok(['worktree', 'fork', 'kept'], { cwd });
    expect(await readdir(join(cwd, '../worktrees/kept/main', deep))).toEqual(['c']);
  });
});
