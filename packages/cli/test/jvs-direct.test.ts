import {
  appendFile,
  chmod,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { canMount, MountedFilesystem, whereMounts, whyNotMountable } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf, JvsFixture } from './jvs-fixture.ts';

/** What `coppice-tree jvs` does without Node must be what Node does: this compares the two. */
let jvs: JvsFixture;
let counter = 0;
beforeAll(async () => {
  jvs = await JvsFixture.create();
  // In place of Node: says that it was needed, and for what.
  await jvs.program('node-stand-in', 'shift; echo "node: $*"; exit 77');
});
afterAll(() => jvs[Symbol.asyncDispose]());

const workspace = async (below = jvs.work): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: below });
  const cwd = join(below, `ws-${counter}`, 'main');
  await mkdir(join(cwd, 'd/e'), { recursive: true });
  for (const name of ['a', 'd/b', 'd/e/c']) await writeFile(join(cwd, name), `one ${name}`);
  await writeFile(join(cwd, 'large'), Buffer.alloc(300_000, 1));
  await symlink('a', join(cwd, 'link'));
  // A large file that is as young as its snapshot is read and stored again by the next one.
  await setTimeout(100);
  return cwd;
};

const direct = (args: readonly string[]): [string, ...string[]] => [
  jvs.env.COPPICE_TREE_PROGRAM ?? '',
  ...['jvs', join(jvs.bin, 'node-stand-in'), '--option', 'jvs.mjs', ...args],
];

const withoutNode = (args: readonly string[], cwd: string, env: Record<string, string> = {}) => {
  const [program, ...rest] = direct(args);
  return jvs.run(program, rest, { cwd, env });
};

const needsNode = async (args: readonly string[], cwd: string, env?: Record<string, string>) => {
  const log = await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8');
  expect(await withoutNode(args, cwd, env)).toMatchObject({
    code: 77,
    stdout: `node: jvs.mjs ${args.join(' ')}\n`,
  });
  expect(await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8')).toBe(log);
};

const control = (cwd: string, folder: string): Promise<string[]> => readdir(join(cwd, '../.jvs', folder));

/** Ids, times and hashes differ between two workspaces; nothing else may. Each id becomes its number in the log. */
const neutral = (text: string, log: string): string => {
  const ids = log.match(/(?<="snapshot_id":")\w+/g) ?? [];
  return [...new Set(ids)]
    .reduce((rest, id, at) => rest.replaceAll(id, `ID-${at}`).replaceAll(id.slice(0, 8), `SHORT-${at}`), text)
    .replace(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3}Z)?/g, 'TIME')
    .replace(/[0-9a-f]{64}(:[0-9a-f]{16}:\d+:\d+)?/g, 'HASH')
    .replace(/"repo_id":"[^"]*"/g, '"repo_id":"ID"');
};

const story = async (
  cwd: string,
  run: (args: readonly string[]) => Promise<{ code: number | null; stdout: string; stderr: string }>,
): Promise<string> => {
  const said: string[] = [];
  const step = async (...args: string[]): Promise<void> => {
    const { code, stdout, stderr } = await run(args);
    said.push(`${args.join(' ')} ${code}\n${stdout}${stderr}`);
  };
  await step('snapshot', 'first', '--tag', 'base', '--tag', 'v1.0');
  await step('restore', 'HEAD');
  await appendFile(join(cwd, 'a'), ' more');
  await step('snapshot', 'Änderung, 50 % <of> it: {x}');
  await step('snapshot');
  await writeFile(join(cwd, 'odd'), Buffer.alloc(1280, 7));
  await rm(join(cwd, 'd/e'), { recursive: true });
  await chmod(join(cwd, 'd/b'), 0o750);
  await step('restore', 'HEAD');
  await step('restore', 'base');
  await step('restore', 'HEAD');
  await writeFile(join(cwd, 'odd'), Buffer.alloc(1280, 7));
  await step('snapshot', 'odd', '--tag', 'odd');
  const log = await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8');
  return neutral(`${said.join('')}${log}`, log);
};

const bothWays = async (below = jvs.work): Promise<void> => {
  const [one, other] = [await workspace(below), await workspace(below)];
  const direct = await story(one, (args) => withoutNode(args, one));
  const byNode = await story(other, async (args) => jvs.jvs(args, { cwd: other }));
  expect(direct).toBe(byNode);
  for (const cwd of [one, other]) {
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
    await jvs.ok(['verify', '--all'], { cwd });
    expect(await control(cwd, 'intents')).toEqual([]);
    expect(await control(cwd, 'tmp')).toEqual([]);
  }
  const stored = async (cwd: string): Promise<number[]> =>
    Promise.all(['packs', 'blobs', 'trees'].map(async (folder) => (await control(cwd, folder)).length));
  expect(await stored(one)).toEqual(await stored(other));
};

describe('without Node', () => {
  test('snapshot and restore say, write down and store what they do by Node', () => bothWays());

  test('the same on btrfs and on xfs', whereMounts('btrfs', 'xfs'), async () => {
    for (const kind of ['btrfs', 'xfs'] as const) {
      await using mounted = await MountedFilesystem.create(kind, jvs.home);
      await bothWays(mounted.path);
    }
  });

  test(
    'a fork of either of two snapshots of one tree on btrfs has nothing to restore',
    whereMounts('btrfs'),
    async () => {
      await using mounted = await MountedFilesystem.create('btrfs', jvs.home);
      const cwd = await workspace(mounted.path);
      for (const tag of ['one', 'two']) await withoutNode(['snapshot', tag, '--tag', tag], cwd);
      for (const tag of ['one', 'two']) {
        await jvs.ok(['worktree', 'fork', tag, `of-${tag}`], { cwd });
        const side = join(cwd, `../worktrees/of-${tag}/main`);
        expect(await withoutNode(['restore', 'HEAD'], side)).toMatchObject({ code: 0, stderr: '' });
        expect(await jvs.json(['snapshot', 'again'], { cwd: side })).toMatchObject({ new_bytes: 0 });
      }
    },
  );

  test(
    'ignored files that have the name of a restored one are kept on btrfs, each time',
    whereMounts('btrfs'),
    async () => {
      await using mounted = await MountedFilesystem.create('btrfs', jvs.home);
      const cwd = await workspace(mounted.path);
      await withoutNode(['snapshot', 'with', '--tag', 'with'], cwd);
      for (const [at, restore] of [
        withoutNode,
        (args: readonly string[]) => jvs.spawned(['--debug', ...args], { cwd }),
      ].entries()) {
        await writeFile(join(cwd, '.jvsignore'), 'a*\n');
        await writeFile(join(cwd, 'a'), `only here ${at}`);
        const { stderr } = await restore(['restore', 'with'], cwd);
        const [, ending = ''] =
          /1 ignored .* are now beside, with their names ending in (\S+)/.exec(stderr) ?? [];
        expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
        expect(await readFile(join(cwd, `a${ending}`), 'utf8')).toBe(`only here ${at}`);
      }
    },
  );

  test('what is more than plain is left to Node, and nothing is changed', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one', '--tag', 'one'], cwd);
    for (const args of [
      ['history'],
      ['snapshot', '-'],
      ['snapshot', 'two', 'words'],
      ['snapshot', 'say "it"'],
      ['snapshot', 'back\\slash'],
      ['snapshot', 'left\u200fright'],
      ['snapshot', '--tag'],
      ['snapshot', '--tag', 'a,b'],
      ['snapshot', '--tag', 'HEAD'],
      ['snapshot', '--tag', 'same', '--tag', 'same'],
      ['snapshot', '--json'],
      ['restore'],
      ['restore', 'on'],
      ['restore', 'HEAD', '--discard'],
      ['--json', 'restore', 'HEAD'],
    ])
      await needsNode(args, cwd);
    await needsNode(['snapshot', 'x'], cwd, { JVS_ENGINE: 'copy' });
    await writeFile(join(cwd, '../.jvs/intents/left.json'), '{}');
    await needsNode(['snapshot', 'x'], cwd);
    await rm(join(cwd, '../.jvs/intents/left.json'));
    await jvs.ok(['config', 'set', 'default_tags', 'always'], { cwd });
    await needsNode(['snapshot', 'x'], cwd);
    await needsNode(['snapshot', 'x'], cwd);
  });

  test('a log that cannot be read is for Node to complain about', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    const log = join(cwd, '../.jvs/log.jsonl');
    const text = await readFile(log, 'utf8');
    for (const broken of [
      text.replace('"note":"one"', '"note":"one'),
      text.replace('"snapshot_id"', '"id"'),
      `${text}{}\n`,
    ]) {
      await writeFile(log, broken);
      await needsNode(['snapshot', 'x'], cwd);
    }
    await writeFile(log, `${text}{"seq":9,"torn`);
    expect(await withoutNode(['snapshot', 'two'], cwd)).toMatchObject({ code: 0 });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });

  test('another command at work is waited for by Node', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    const { stdout } = await jvs.bash(
      `exec 9> ../.jvs/locks/worktree-main
       flock 9
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs snapshot x 9>&- || true`,
      { cwd },
    );
    expect(stdout).toBe('node: snapshot x\n');
  });

  test('a renamed worktree, and one that a collection went through, go on', async () => {
    const cwd = await workspace();
    await jvs.ok(['snapshot', 'one'], { cwd });
    await jvs.ok(['snapshot', 'two'], { cwd });
    await jvs.ok(['worktree', 'fork', 'HEAD', 'side'], { cwd });
    await jvs.ok(['worktree', 'rename', 'side', 'other'], { cwd });
    const other = join(cwd, '../worktrees/other/main');
    await appendFile(join(other, 'a'), ' side');
    expect((await jvs.spawned(['snapshot', 'aside'], { cwd: other })).code).toBe(0);
    await jvs.ok(['gc', 'plan', '--keep-hours', '0'], { cwd });
    await jvs.ok(['gc', 'run'], { cwd });
    await appendFile(join(cwd, 'a'), ' main');
    expect(await withoutNode(['snapshot', 'three'], cwd)).toMatchObject({ code: 0 });
    const history = await jvs.json<{ note: string; worktree_name: string }[]>(['history', '--all'], { cwd });
    expect(history.map(({ note, worktree_name }) => `${worktree_name} ${note}`)).toEqual([
      'main three',
      'other aside',
      'main two',
    ]);
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('a collection of a great many snapshots is read in one go', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'kept', '--tag', 'kept'], cwd);
    const log = join(cwd, '../.jvs/log.jsonl');
    const hash = '0'.repeat(64);
    const ids = Array.from({ length: 200_000 }, (_, at) => `x${String(at).padStart(15, '0')}`);
    const line = (seq: number, type: string, data: unknown): string =>
      JSON.stringify({ seq, type, data, hash });
    const snapshots = ids.map((id, at) =>
      line(3 + at, 'snapshot', {
        snapshot: { snapshot_id: id, worktree_name: 'other', tags: ['kept'] },
        saved_root_hash: null,
      }),
    );
    // All but one, which then is the newest with this tag.
    const left = ids[1000];
    const mark = line(3 + ids.length, 'gc_mark', { snapshots: ids.filter((id) => id !== left) });
    await appendFile(log, `${[...snapshots, mark, line(4 + ids.length, 'gc_done', {})].join('\n')}\n`);
    // Its own time and not that of a busy machine: one that reads it again for each snapshot needs many minutes.
    const snapshot = direct(['snapshot', 'after', '--tag', 'after']);
    expect(await jvs.run('prlimit', ['--cpu=60', ...snapshot], { cwd })).toMatchObject({ code: 0 });
    await needsNode(['restore', 'kept'], cwd);
    expect(await withoutNode(['restore', 'after'], cwd)).toMatchObject({ code: 0 });
    await needsNode(['restore', ids[0] ?? ''], cwd);
  });

  test.for(['plain', 'btrfs'] as const)(
    'what somebody writes while a restore is at work is kept, on %s',
    async (kind, { skip }) => {
      skip(kind === 'btrfs' && !canMount('btrfs'), whyNotMountable('btrfs'));
      await using mounted = kind === 'btrfs' ? await MountedFilesystem.create(kind, jvs.home) : undefined;
      const cwd = await workspace(mounted?.path);
      await withoutNode(['snapshot', 'base', '--tag', 'base'], cwd);
      for (const name of ['a', 'd/b', 'extra', 'gone', 'kind'])
        await writeFile(join(cwd, name), `saved ${name}`);
      await symlink('here', join(cwd, 'points'));
      await mkdir(join(cwd, 'folder'));
      const long = ['1', '2'].map((end) => `${'n'.repeat(240)}${end}`);
      for (const name of [...long, 'name', 'first']) await writeFile(join(cwd, name), 'saved');
      for (const name of ['other', 'second', 'third']) await link(join(cwd, 'first'), join(cwd, name));
      // Everything is saved and staged when somebody goes on.
      const { code, stderr } = await jvs.runStopped(
        'restore-staged',
        direct(['restore', 'base']),
        { cwd },
        async () => {
          await writeFile(join(cwd, 'a'), 'written late a');
          await writeFile(join(cwd, 'extra'), 'written late extra');
          for (const name of ['gone', 'points', 'kind']) await rm(join(cwd, name));
          await symlink('there', join(cwd, 'points'));
          await mkdir(join(cwd, 'kind'));
          await writeFile(join(cwd, 'kind/inside'), 'written late inside');
          await rm(join(cwd, 'folder'), { recursive: true });
          await writeFile(join(cwd, 'folder'), 'written late folder');
          for (const name of long) await writeFile(join(cwd, name), `written late ${name}`);
          // Another file takes the place of what is another name of one, as editors save.
          await writeFile(join(cwd, 'name'), 'written late second');
          await rename(join(cwd, 'name'), join(cwd, 'second'));
        },
      );
      expect(code).toBe(0);
      expect(stderr).toMatch(/8 ignored or just changed entries stood in the way and are now/);
      expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
      expect(await readFile(join(cwd, 'd/b'), 'utf8')).toBe('one d/b');
      const kept = await jvs.bash(
        "{ grep -rh 'written late' .. --exclude-dir=trees; find .. -type l -printf '%l\\n'; } | sort -u",
        { cwd },
      );
      expect(kept.stdout.trim().split('\n')).toEqual(
        expect.arrayContaining([
          'there',
          ...['a', 'extra', 'inside', 'folder', 'second', ...long].map((name) => `written late ${name}`),
        ]),
      );
      // What was saved before is what the scan saw.
      const automatic = (await jvs.json<{ note: string; snapshot_id: string }[]>(['history'], { cwd })).find(
        ({ note }) => note.startsWith('Unsaved changes'),
      );
      await jvs.ok(['restore', automatic?.snapshot_id ?? ''], { cwd });
      for (const name of ['a', 'd/b', 'extra', 'gone', 'kind'])
        expect(await readFile(join(cwd, name), 'utf8')).toBe(`saved ${name}`);
      await jvs.ok(['verify', '--all'], { cwd });
    },
  );

  test('what fails is undone, and said by Node', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    await appendFile(join(cwd, 'd/b'), ' more');
    const before = await digestOf(cwd);
    const [pack = ''] = await control(cwd, 'packs');
    const file = await open(join(cwd, '../.jvs/packs', pack), 'r+');
    const bytes = await file.readFile();
    await file.write('X', bytes.indexOf('one d/b'));
    await file.close();
    const { code, stderr } = await jvs.spawned(['restore', 'HEAD'], { cwd });
    expect(code).toBe(71);
    expect(stderr).toMatch(
      /unsaved changes are kept as .*\njvs: error: the stored content of d\/b does not match its hash\nhint: /,
    );
    expect(await digestOf(cwd)).toBe(before);
    expect(await control(cwd, 'intents')).toEqual([]);
    expect(await control(cwd, 'tmp')).toEqual([]);
    expect(await control(cwd, 'packs')).toHaveLength(2);
    expect(await jvs.json(['doctor'], { cwd })).toMatchObject({ healthy: true });
  });

  test('without input, output and stderr, nothing of the workspace is written to in their place', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    await appendFile(join(cwd, 'a'), ' more');
    await jvs.bash('"$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs restore HEAD <&- >&- 2>&-', { cwd });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
    expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
  });

  test('a notice that nobody reads does not stop a snapshot', async () => {
    const cwd = await workspace();
    const { stdout } = await jvs.bash(
      `exec 8> >(:)
       wait $!
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs snapshot one > /dev/null
       echo more >> a
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs restore HEAD 2>&8`,
      { cwd },
    );
    expect(stdout).toMatch(/^Restored \w+ "one": /);
  });
});
