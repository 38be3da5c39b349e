import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { digestOf, JvsFixture, readText } from './jvs-fixture.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

/** What people of git, restic and jj look for first. */
let jvs: JvsFixture;
let btrfs: MountedFilesystem | undefined;
let counter = 0;
beforeAll(async () => {
  jvs = await JvsFixture.create();
  if (canMount('btrfs')) btrfs = await MountedFilesystem.create('btrfs', jvs.home);
});
afterAll(async () => {
  await btrfs?.[Symbol.asyncDispose]();
  await jvs[Symbol.asyncDispose]();
});

const fresh = async (parent = jvs.work): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: parent });
  return join(parent, `ws-${counter}`, 'main');
};

const places = () => [jvs.work, ...(btrfs ? [btrfs.path] : [])];

describe('status', () => {
  test('says where the worktree is and what has changed, before the first snapshot too', async () => {
    const cwd = await fresh();
    expect(await jvs.ok(['status'], { cwd })).toMatch(/^Worktree main, without a snapshot yet\nNothing has/);
    await writeFile(join(cwd, 'f'), '1');
    expect(await jvs.ok(['status'], { cwd })).toContain('1 change:\nA f\n');
    await jvs.ok(['snapshot', 'one', '--tag', 'one'], { cwd });
    expect(await jvs.ok(['status'], { cwd })).toMatch(
      /^Worktree main at \w{8} one\nNothing has changed\.\n$/,
    );
    await writeFile(join(cwd, 'f'), '22');
    await writeFile(join(cwd, 'g'), '1');
    expect(await jvs.json(['status'], { cwd })).toMatchObject({
      worktree: 'main',
      clean: false,
      total_added: 1,
      total_modified: 1,
      changes: [
        { path: 'f', change: 'modified', type: 'f' },
        { path: 'g', change: 'added', type: 'f' },
      ],
    });
  });
});

test('what is counted is named in the singular when there is one', async () => {
  const cwd = await fresh();
  await writeFile(join(cwd, 'only'), 'one');
  expect(await jvs.ok(['snapshot', 'directly'], { cwd })).toMatch(/^ {2}1 file, /m);
  await writeFile(join(cwd, 'only'), 'another');
  expect(await jvs.ok(['snapshot', 'by', '--no-color'], { cwd })).toMatch(/^ {2}1 file, /m);
  expect(await jvs.ok(['info'], { cwd })).toMatch(/main \(1 worktree in all\)/);
  expect(await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd })).toMatch(
    /: 1 snapshot to delete, /,
  );
  expect(await jvs.ok(['gc', 'run'], { cwd })).toMatch(/^1 snapshot deleted, /);
});

describe('undo', () => {
  test('takes back a restore with what was not saved, and redo brings it back', async () => {
    for (const place of places()) {
      const cwd = await fresh(place);
      expect((await jvs.jvs(['undo'], { cwd })).code).toBe(5);
      await writeFile(join(cwd, 'f'), '1');
      await jvs.ok(['snapshot', 'one', '--tag', 'one'], { cwd });
      await writeFile(join(cwd, 'f'), 'unsaved');
      const before = await digestOf(cwd);
      await jvs.ok(['restore', 'one'], { cwd });
      expect(await readText(join(cwd, 'f'))).toBe('1');
      await jvs.ok(['undo'], { cwd });
      expect(await digestOf(cwd)).toBe(before);
      await jvs.ok(['redo'], { cwd });
      expect(await readText(join(cwd, 'f'))).toBe('1');
    }
  });

  test('goes back restore by restore, and redo forth, until another restore', async () => {
    for (const place of places()) {
      const cwd = await fresh(place);
      const f = join(cwd, 'f');
      for (const text of ['1', '2', '3']) {
        await writeFile(f, text);
        await jvs.ok(['snapshot', text, '--tag', `t${text}`], { cwd });
      }
      const goes = async (...words: string[]): Promise<string> => {
        await jvs.ok(words, { cwd });
        return readText(f);
      };
      expect(await goes('restore', 't1')).toBe('1');
      await writeFile(f, 'unsaved');
      expect(await goes('restore', 't2')).toBe('2');
      expect(await goes('undo')).toBe('unsaved');
      expect(await goes('undo')).toBe('3');
      expect((await jvs.jvs(['undo'], { cwd })).code).toBe(5);
      expect(await goes('redo')).toBe('unsaved');
      expect(await goes('redo')).toBe('2');
      expect((await jvs.jvs(['redo'], { cwd })).code).toBe(5);
      expect(await goes('undo')).toBe('unsaved');
      expect(await goes('restore', 't3')).toBe('3');
      expect((await jvs.jvs(['redo'], { cwd })).code).toBe(5);
      expect(await goes('undo')).toBe('unsaved');
    }
  });

  test('of a restore of some paths brings all of the worktree back', async () => {
    const cwd = await fresh();
    for (const name of ['a', 'b']) await writeFile(join(cwd, name), '1');
    await jvs.ok(['snapshot', 'one'], { cwd });
    for (const name of ['a', 'b']) await writeFile(join(cwd, name), '2');
    await jvs.ok(['snapshot', 'two'], { cwd });
    await jvs.ok(['restore', 'one', '--paths', 'a'], { cwd });
    await jvs.ok(['undo'], { cwd });
    expect([await readText(join(cwd, 'a')), await readText(join(cwd, 'b'))]).toEqual(['2', '2']);
  });
});

describe('tag and untag', () => {
  test('change the tags of a snapshot, for references, history and collection', async () => {
    const cwd = await fresh();
    await jvs.ok(['snapshot', 'one', '--tag', 'first'], { cwd });
    await jvs.ok(['snapshot', 'two'], { cwd });
    expect(await jvs.json(['tag', 'first', 'good', 'v1,v2'], { cwd })).toMatchObject({
      tags: ['first', 'good', 'v1', 'v2'],
    });
    await jvs.ok(['tag', 'HEAD', 'good'], { cwd });
    const tagged = await jvs.json<{ note: string }[]>(['history', '--tag', 'good'], { cwd });
    expect(tagged.map(({ note }) => note)).toEqual(['two', 'one']);
    // The plain form, which starts no Node, knows them too.
    expect(await jvs.ok(['restore', 'v2'], { cwd })).toContain('"one"');
    await jvs.ok(['untag', 'v1', 'v1', 'v2'], { cwd });
    expect((await jvs.jvs(['restore', 'v2'], { cwd })).code).toBe(5);
    expect((await jvs.jvs(['untag', 'first', 'v2'], { cwd })).code).toBe(5);
    expect((await jvs.jvs(['tag', 'first', 'HEAD'], { cwd })).code).toBe(2);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
  });
});

describe('ls, cat, diff --patch and restore --to', () => {
  const prepare = async (place: string): Promise<string> => {
    const cwd = await fresh(place);
    await mkdir(join(cwd, 'd/e'), { recursive: true });
    await writeFile(join(cwd, 'd/e/f'), 'deep\n');
    await writeFile(join(cwd, 'large'), Buffer.alloc(400_000, 'x'));
    await writeFile(join(cwd, 'binary'), Buffer.from([0, 1, 2, 255]));
    await jvs.bash('echo two names > first; ln first hard; ln -s d soft; : > empty; chmod 750 d', { cwd });
    await jvs.ok(['snapshot', 'one', '--tag', 'one'], { cwd });
    return cwd;
  };

  test('list and show what a snapshot holds', async () => {
    for (const place of places()) {
      const cwd = await prepare(place);
      await jvs.bash('rm -r d first hard large', { cwd });
      expect((await jvs.ok(['ls'], { cwd })).split('\n').sort()).toEqual(
        ['', 'binary', 'd/', 'empty', 'first', 'hard', 'large', 'soft'].sort(),
      );
      expect(await jvs.ok(['ls', 'one:d', '-R'], { cwd })).toBe('d/e/\nd/e/f\n');
      expect(await jvs.ok(['ls', 'one:d/', '-l'], { cwd })).toMatch(
        /^d 0755 +\d+ \d{4}-\d\d-\d\d .* d\/e\/\n$/,
      );
      const [file] = await jvs.json<unknown[]>(['ls', 'one:d/e/f'], { cwd });
      expect(file).toMatchObject({ path: 'd/e/f', type: 'f', size: 5, mode: 0o644 });
      expect(await jvs.ok(['cat', 'one:d/e/f'], { cwd })).toBe('deep\n');
      expect(await jvs.ok(['cat', 'one:hard'], { cwd })).toBe('two names\n');
      expect(await jvs.json(['ls', 'one:hard'], { cwd })).toMatchObject([
        { type: 'h', size: 10, mode: 0o644, target: 'first' },
      ]);
      expect(await jvs.ok(['cat', 'HEAD:large'], { cwd })).toBe('x'.repeat(400_000));
      expect(await jvs.ok(['cat', 'one:empty'], { cwd })).toBe('');
      for (const [word, code] of [
        ['one:nothing', 5],
        ['one:d', 2],
        ['one:soft', 2],
        ['one', 2],
        ['nobody:f', 5],
      ] as const)
        expect({ word, code: (await jvs.jvs(['cat', word], { cwd })).code }).toEqual({ word, code });
      expect(await readdir(join(cwd, '../.jvs/tmp'))).toEqual([]);
    }
  });

  test('cat shows nothing of a file that is damaged', async () => {
    const cwd = await prepare(jvs.work);
    const damaged = await jvs.bash(`sed -i 's/^x/y/' ../.jvs/blobs/*/*; jvs cat one:large`, { cwd });
    expect(damaged).toMatchObject({ code: 71, stdout: '' });
  });

  test('diff --patch shows the lines that differ, and patch applies it', async () => {
    for (const place of places()) {
      const cwd = await prepare(place);
      await jvs.ok(['restore', 'one', '--to', join(place, `patched-${counter}`)], { cwd });
      await jvs.bash('echo more >> d/e/f; echo new > new; rm empty; echo x >> binary', { cwd });
      const patch = await jvs.ok(['diff', '-p'], { cwd });
      expect(patch).toContain('--- a/d/e/f\n+++ b/d/e/f\n@@ -1,1 +1,2 @@\n deep\n+more\n');
      expect(patch).toContain('--- /dev/null\n+++ b/new\n');
      expect(patch).toContain('M binary  (binary)\n');
      const applied = await jvs.bash('patch -p1 --batch; cat d/e/f new', {
        cwd: join(place, `patched-${counter}`),
        input: patch,
      });
      expect(applied.stdout).toMatch(/deep\nmore\nnew\n$/);
      expect((await jvs.jvs(['diff', '-p', '--json'], { cwd })).code).toBe(2);
    }
  });

  test('restore --to makes a directory of its own and leaves the worktree alone', async () => {
    for (const place of places()) {
      const cwd = await prepare(place);
      const whole = await digestOf(cwd);
      await appendFile(join(cwd, 'd/e/f'), 'unsaved');
      const [to, part] = [join(place, `out-${counter}`), join(place, `part-${counter}`)];
      await jvs.ok(['restore', 'one', '--to', to], { cwd });
      expect(await digestOf(to)).toBe(whole);
      expect(await readText(join(cwd, 'd/e/f'))).toBe('deep\nunsaved');
      await mkdir(part);
      await jvs.ok(['restore', 'one', '--to', part, '--paths', 'e'], { cwd: join(cwd, 'd') });
      expect(await readdir(part, { recursive: true })).toEqual(['d', 'd/e', 'd/e/f']);
      expect((await jvs.jvs(['restore', 'one', '--to', to], { cwd })).code).toBe(6);
      const inside = join(cwd, '../.jvs/x');
      expect((await jvs.jvs(['restore', 'one', '--to', inside], { cwd })).code).toBe(2);
      const missing = ['restore', 'one', '--to', `${to}-x`, '--paths', 'nothing'];
      expect((await jvs.jvs(missing, { cwd })).code).toBe(5);
      expect(existsSync(`${to}-x`)).toBe(false);
      expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    }
  });
});

describe('history', () => {
  test('shows local time, in both front ends', async () => {
    const cwd = await fresh();
    const env = { TZ: 'Asia/Tokyo' };
    const said = await jvs.ok(['snapshot', 'one'], { cwd, env });
    const [{ created_at: at } = { created_at: '' }] = await jvs.json<{ created_at: string }[]>(['history'], {
      cwd,
    });
    const tokyo = new Date(Date.parse(at) + 9 * 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
    expect(said).toContain(tokyo);
    expect(await jvs.ok(['history'], { cwd, env })).toContain(tokyo);
  });

  test('is cut by time, leaves out what was kept automatically, and draws branches', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'f'), '1');
    await jvs.ok(['snapshot', 'base'], { cwd });
    await writeFile(join(cwd, 'f'), 'unsaved');
    await jvs.ok(['restore', 'base'], { cwd });
    await jvs.ok(['snapshot', 'left'], { cwd });
    await jvs.ok(['restore', 'base'], { cwd });
    await jvs.ok(['snapshot', 'right'], { cwd });
    const notes = async (...args: string[]) =>
      (await jvs.json<{ note: string }[]>(['history', ...args], { cwd })).map(({ note }) => note);
    expect(await notes('--no-automatic')).toEqual(['right', 'left', 'base']);
    expect(await notes('--since', '1h', '-n', '2')).toEqual(['right', 'left']);
    expect(await notes('--since', '2999-01-01')).toEqual([]);
    expect(await notes('--since', '2000-01-01T10:00', '--grep', 'base')).toHaveLength(1);
    expect((await jvs.jvs(['history', '--since', 'yesterday'], { cwd })).code).toBe(2);
    const graph = await jvs.ok(['history', '--graph', '--no-automatic'], { cwd });
    expect(graph.split('\n').map((line) => line.slice(0, 4).replace(/\w.*/, ''))).toEqual([
      '* ',
      '| * ',
      '* / ',
      '',
    ]);
  });
});

describe('help and options', () => {
  test('help CMD explains a command, and no unknown option is passed over', async () => {
    const cwd = await fresh();
    expect(await jvs.ok(['help', 'restore'])).toBe(await jvs.ok(['restore', '--help']));
    expect((await jvs.jvs(['help', 'frobnicate'])).code).toBe(2);
    for (const args of [
      ['--nope'],
      ['help', '--nope'],
      ['worktree', 'list', '--force'],
      ['worktree', 'fork', 'x', '--from', 'HEAD'],
      ['gc', 'run', '--keep-hours', '1'],
      ['gc', 'plan', '--plan-id', 'x'],
      ['status', '-x'],
    ]) {
      const { code, stderr } = await jvs.jvs(args, { cwd });
      expect({ args, code }).toEqual({ args, code: 2 });
      expect(stderr).toMatch(/has no option/);
    }
  });
});

describe('init --adopt', () => {
  test('makes a directory with files in it a workspace, and whoever stands in it is in the worktree', async () => {
    for (const place of places()) {
      counter += 1;
      const root = join(place, `mine-${counter}`);
      await mkdir(join(root, 'd'), { recursive: true });
      await writeFile(join(root, 'd/f'), 'mine');
      const before = await digestOf(root);
      const plain = await jvs.jvs(['init', `mine-${counter}`], { cwd: place });
      expect(plain).toMatchObject({ code: 6 });
      expect(plain.stderr).toContain('--adopt');
      const done = await jvs.bash('jvs init . --adopt; cat d/f; env pwd -P; jvs snapshot one', { cwd: root });
      expect(done.code).toBe(0);
      expect(done.stdout).toContain(`mine${root}/main\n`);
      expect(await digestOf(join(root, 'main'))).toBe(before);
      expect((await readdir(root)).sort()).toEqual(['.jvs', 'main']);
      expect(await readdir(place)).not.toContain(`mine-${counter}.jvs-init`);
      expect((await jvs.jvs(['init', `mine-${counter}`, '--adopt'], { cwd: place })).code).toBe(6);
      expect((await jvs.jvs(['init', 'nothing', '--adopt'], { cwd: place })).code).toBe(5);
      expect(await jvs.json(['doctor', '--strict'], { cwd: root })).toMatchObject({
        healthy: true,
        findings: [],
      });
    }
  });

  test('leaves the directory as it was where it fails', async () => {
    const root = join(jvs.work, 'as-it-was');
    await mkdir(root);
    await writeFile(join(root, 'f'), 'mine');
    const refused = await jvs.jvs(['init', 'as-it-was', '--adopt', '--engine', 'juicefs-clone']);
    expect(refused.code).toBe(11);
    expect(await readdir(root)).toEqual(['f']);
    expect(await readdir(jvs.work)).not.toContain('as-it-was.jvs-init');
  });
});

describe('names that are not UTF-8', () => {
  test('can be given as paths to snapshot, restore and restore --to', async () => {
    const cwd = await fresh();
    const done = await jvs.bash(
      String.raw`mkdir $'d\xff'; echo 1 > $'d\xff/f\xfe'; echo 1 > other
jvs snapshot part --tag part --paths $'d\xff/f\xfe'
echo 2 > $'d\xff/f\xfe'; echo 2 > other
jvs snapshot two
jvs restore part
cat $'d\xff/f\xfe' other
jvs restore two --paths $'d\xff'
jvs restore part --to ../out --paths $'d\xff/f\xfe'
cat $'d\xff/f\xfe' $'../out/d\xff/f\xfe'
jvs cat $'part:d\xff/f\xfe'
if jvs snapshot none --paths $'nothing\xff'; then exit 1; fi`,
      { cwd },
    );
    expect({ code: done.code, stderr: done.stderr }).toMatchObject({ code: 0 });
    expect(done.stdout).toMatch(/\n1\n2\n[\s\S]*\n2\n1\n1\n$/);
  });
});

describe('completion', () => {
  test('knows tags, ids and worktrees, and runs nothing that a tag says', async () => {
    const cwd = await fresh();
    await jvs.ok(['snapshot', 'one', '--tag', 'baseline', '--tag', '$(>pwned)'], { cwd });
    await jvs.ok(['worktree', 'fork', 'side'], { cwd });
    const complete = async (...words: string[]): Promise<string[]> => {
      const { stdout, code } = await jvs.bash(
        `set +eu; source <(jvs completion bash); COMP_WORDS=(jvs ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}; _jvs; printf '%s\\n' "\${COMPREPLY[@]}"`,
        { cwd },
      );
      expect(code).toBe(0);
      return stdout.trim().split('\n');
    };
    expect(await complete('restore', 'base')).toEqual(['baseline']);
    const [{ snapshot_id: id } = { snapshot_id: '' }] = await jvs.json<{ snapshot_id: string }[]>(
      ['history'],
      {
        cwd,
      },
    );
    expect(await complete('restore', id.slice(0, 6))).toEqual([id.slice(0, 8)]);
    expect(await complete('restore', '')).toContain('HEAD');
    expect(await complete('history', '--tag', '')).toContain('baseline');
    expect(await complete('worktree', 'remove', 'si')).toEqual(['side']);
    expect(await complete('sta')).toEqual(['status']);
    expect(await complete('restore', '--dis')).toEqual(['--discard']);
    expect(await readdir(cwd)).not.toContain('pwned');
  });
});
