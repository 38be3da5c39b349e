import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { JvsFixture, readText } from './jvs-fixture.ts';

interface Snapshot {
  readonly snapshot_id: string;
  readonly parent_id: string | null;
  readonly note: string;
  readonly tags: readonly string[];
  readonly automatic: boolean;
  readonly worktree_name: string;
}

let jvs: JvsFixture;
beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(() => jvs[Symbol.asyncDispose]());

let counter = 0;
/** A workspace of its own for each test. */
const fresh = async (): Promise<string> => {
  counter += 1;
  return jvs.workspace(`ws-${counter}`);
};

const take = (cwd: string, note: string, ...more: string[]): Promise<Snapshot> =>
  jvs.json<Snapshot>(['snapshot', note, ...more], { cwd });

describe('init', () => {
  test('makes NAME/main and keeps everything of its own outside of it', async () => {
    const main = await fresh();
    await take(main, 'empty');
    expect(await readdir(main)).toEqual([]);
    expect((await readdir(join(main, '..'))).sort()).toEqual(['.jvs', 'main']);
  });

  test('refuses a bad name, and a directory that is in use, and leaves nothing', async () => {
    expect((await jvs.jvs(['init', '../evil'])).code).toBe(2);
    expect((await jvs.jvs(['init', 'a..b'])).code).toBe(2);
    const main = await fresh();
    const again = await jvs.jvs(['init', `ws-${counter}`]);
    expect(again).toMatchObject({ code: 6 });
    expect(existsSync(main)).toBe(true);
    expect((await jvs.jvs(['init', 'unknown-engine', '--engine', 'zfs'])).code).toBe(2);
    expect((await jvs.jvs(['init', 'unknown-engine', '--engine', ''])).code).toBe(2);
    expect(existsSync(join(jvs.work, 'unknown-engine'))).toBe(false);
  });

  test('fails where the engine that --engine names cannot be had; a wish in the environment is replaced aloud', async () => {
    const refused = await jvs.jvs(['init', 'elsewhere', '--engine', 'juicefs-clone']);
    expect(refused.code).toBe(11);
    expect(refused.stderr).toMatch(
      /the engine juicefs-clone cannot be used here[\s\S]*hint: Leave out --engine/,
    );
    expect(existsSync(join(jvs.work, 'elsewhere'))).toBe(false);
    const wished = await jvs.jvs(['init', 'elsewhere'], { env: { JVS_ENGINE: 'juicefs-clone' } });
    expect(wished.code).toBe(0);
    expect(wished.stderr).toMatch(/the engine juicefs-clone cannot be used here .*: using \S+ instead/);
  });
});

describe('references', () => {
  test('HEAD, ids, prefixes, tags and notes all name a snapshot, and ambiguity lists the candidates', async () => {
    const cwd = await fresh();
    const one = await take(cwd, 'run one', '--tag', 'v1');
    const two = await take(cwd, 'run two', '--tag', 'v1.1,shared');
    const three = await take(cwd, 'other', '--tag', 'shared');
    const restored = async (reference: string): Promise<string> =>
      (await jvs.json<{ snapshot_id: string }>(['restore', reference], { cwd })).snapshot_id;
    expect(await restored(one.snapshot_id)).toBe(one.snapshot_id);
    expect(await restored('HEAD')).toBe(one.snapshot_id);
    expect(await restored(two.snapshot_id.slice(0, 8))).toBe(two.snapshot_id);
    expect(await restored('v1')).toBe(one.snapshot_id);
    expect(await restored('shared')).toBe(three.snapshot_id);
    expect(await restored('oth')).toBe(three.snapshot_id);
    const ambiguous = await jvs.jvs(['restore', 'run', '--json'], { cwd });
    expect(ambiguous.code).toBe(6);
    const { error } = JSON.parse(ambiguous.stderr) as {
      error: { code: string; details: { candidates: string[] } };
    };
    expect(error.code).toBe('ambiguous');
    expect(error.details.candidates).toEqual([one.snapshot_id, two.snapshot_id]);
    expect(new Set([one, two, three].map(({ snapshot_id: id }) => id.slice(0, 8))).size).toBe(3);
    expect((await jvs.jvs(['restore', 'nothing'], { cwd })).code).toBe(5);
  });

  test('the same rule holds for diff, verify, fork and pin', async () => {
    const cwd = await fresh();
    await take(cwd, 'first thing', '--tag', 'good');
    for (const args of [
      ['diff', 'first'],
      ['verify', 'good'],
      ['worktree', 'fork', 'first', 'w'],
      ['pin', 'good'],
    ]) {
      expect((await jvs.jvs(args, { cwd })).code).toBe(0);
    }
  });
});

describe('snapshot', () => {
  test('takes its note from a word, a file or the input', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'note.txt'), 'from a file\nsecond line\n');
    expect((await jvs.json<Snapshot>(['snapshot', '-F', 'note.txt'], { cwd })).note).toBe(
      'from a file\nsecond line',
    );
    expect((await jvs.json<Snapshot>(['snapshot', '-'], { cwd, input: 'from input\n' })).note).toBe(
      'from input',
    );
    expect((await jvs.json<Snapshot>(['snapshot', '-F', '-'], { cwd, input: 'also input\n' })).note).toBe(
      'also input',
    );
    expect((await jvs.json<Snapshot>(['snapshot'], { cwd })).note).toBe('');
    expect((await jvs.jvs(['snapshot', 'a', '-F', 'note.txt'], { cwd })).code).toBe(2);
    expect((await jvs.ok(['history'], { cwd })).trim().split('\n')).toHaveLength(4);
  });

  test('takes a note of 64 KiB and none that is longer, and what follows it is recorded like everything else', async () => {
    const cwd = await fresh();
    const long = 'x'.repeat(64 * 1024);
    expect((await jvs.json<Snapshot>(['snapshot', '-'], { cwd, input: long })).note).toBe(long);
    expect((await jvs.jvs(['snapshot', '-'], { cwd, input: `${long}x` })).code).toBe(10);
    await take(cwd, 'after it');
    expect(await jvs.json<Snapshot[]>(['history'], { cwd })).toHaveLength(2);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
  });

  test('of some paths holds only these, and its restore touches only these', async () => {
    const cwd = await fresh();
    await mkdir(join(cwd, 'code/deep'), { recursive: true });
    await writeFile(join(cwd, 'code/deep/a'), 'a1');
    await writeFile(join(cwd, 'data'), 'd1');
    await jvs.ok(['snapshot', 'part', '--paths', 'code/', '--tag', 'part'], { cwd });
    await writeFile(join(cwd, 'code/deep/a'), 'a2');
    await writeFile(join(cwd, 'code/extra'), 'x');
    await writeFile(join(cwd, 'data'), 'd2');
    await jvs.ok(['restore', 'part'], { cwd });
    expect(await readText(join(cwd, 'code/deep/a'))).toBe('a1');
    expect(existsSync(join(cwd, 'code/extra'))).toBe(false);
    expect(await readText(join(cwd, 'data'))).toBe('d2');
    expect((await jvs.jvs(['snapshot', 'x', '--paths', '../..'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['snapshot', 'x', '--paths', 'missing'], { cwd })).code).toBe(5);
  });

  test('refuses tags that cannot be typed, and then nothing has happened', async () => {
    const cwd = await fresh();
    expect((await jvs.jvs(['snapshot', 'x', '--tag', 'a b'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['snapshot', 'x', '--tag', 'HEAD'], { cwd })).code).toBe(2);
    expect(await jvs.ok(['history'], { cwd })).toBe('');
  });

  test('leaves out what .jvsignore names, and restore leaves that alone', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, '.jvsignore'), '*.log\n/build/\n!keep.log\n');
    await mkdir(join(cwd, 'build'));
    await writeFile(join(cwd, 'build/out'), 'o');
    await writeFile(join(cwd, 'a.log'), 'l');
    await writeFile(join(cwd, 'keep.log'), 'k');
    await take(cwd, 'first');
    await writeFile(join(cwd, 'a.log'), 'changed');
    await rm(join(cwd, 'keep.log'));
    await jvs.ok(['restore', 'first'], { cwd });
    expect(await readText(join(cwd, 'a.log'))).toBe('changed');
    expect(await readText(join(cwd, 'build/out'))).toBe('o');
    expect(await readText(join(cwd, 'keep.log'))).toBe('k');
    await jvs.ok(['worktree', 'fork', 'other'], { cwd });
    expect((await readdir(join(cwd, '../worktrees/other/main'))).sort()).toEqual(['.jvsignore', 'keep.log']);
  });
});

describe('restore', () => {
  test('moves ignored files aside that have the name of a restored one, and shows no control characters of its note', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'local'), 'stored');
    await jvs.ok(['snapshot', 'with\u009b31m', '--tag', 'with'], { cwd });
    await rm(join(cwd, 'local'));
    await writeFile(join(cwd, '.jvsignore'), 'local\n');
    await jvs.ok(['snapshot', 'without'], { cwd });
    await writeFile(join(cwd, 'local'), 'only here');
    const { stdout, stderr } = await jvs.jvs(['restore', 'with'], { cwd });
    expect(stdout).toContain('"with\\x9b31m"');
    expect(await readText(join(cwd, 'local'))).toBe('stored');
    const [, kept = ''] =
      /1 entry that was ignored or had just changed was in the way and is now in (\S+)/.exec(stderr) ?? [];
    expect(await readText(join(kept, '0'))).toBe('only here');
  });

  test('does not take files for saved that were ignored until the restore took the rules away', async () => {
    const cwd = await fresh();
    await jvs.bash('echo f > f', { cwd });
    await take(cwd, 'without rules');
    await jvs.bash("echo '*.log' > .jvsignore; echo precious > a.log", { cwd });
    await take(cwd, 'with rules');
    await jvs.ok(['restore', 'without rules'], { cwd });
    expect(await readText(join(cwd, 'a.log'))).toBe('precious\n');
    const { saved_snapshot_id: saved } = await jvs.json<{ saved_snapshot_id: string }>(
      ['restore', 'with rules'],
      { cwd },
    );
    expect(saved).not.toBeNull();
    await jvs.ok(['restore', saved], { cwd });
    expect(await readText(join(cwd, 'a.log'))).toBe('precious\n');
  });

  test('keeps unsaved changes as an automatic snapshot, unless told to discard them', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'f'), '1');
    await take(cwd, 'one');
    await writeFile(join(cwd, 'f'), 'unsaved');
    const first = await jvs.json<{ saved_snapshot_id: string }>(['restore', 'one'], { cwd });
    expect(await readText(join(cwd, 'f'))).toBe('1');
    await jvs.ok(['restore', first.saved_snapshot_id], { cwd });
    expect(await readText(join(cwd, 'f'))).toBe('unsaved');
    await writeFile(join(cwd, 'f'), 'gone');
    expect(await jvs.json(['restore', 'one', '--discard'], { cwd })).toMatchObject({
      saved_snapshot_id: null,
    });
    expect(
      (await jvs.json<Snapshot[]>(['history'], { cwd })).filter(({ automatic }) => automatic),
    ).toHaveLength(1);
  });

  test('keeps the directory itself: whoever stands in it goes on', async () => {
    const cwd = await fresh();
    await mkdir(join(cwd, 'sub'));
    await writeFile(join(cwd, 'sub/f'), '1');
    await take(cwd, 'one');
    const before = await stat(cwd);
    const { stdout, code } = await jvs.bash(
      'cd sub; echo 2 > f; jvs restore one >&2; pwd -P; cat f; jvs info > /dev/null',
      { cwd },
    );
    expect(code).toBe(0);
    expect(stdout).toBe(`${join(cwd, 'sub')}\n1`);
    expect((await stat(cwd)).ino).toBe(before.ino);
  });

  test('touches only what differs', async () => {
    const cwd = await fresh();
    for (const name of ['a', 'b', 'c']) await writeFile(join(cwd, name), name);
    await take(cwd, 'one');
    const before = await stat(join(cwd, 'a'));
    await writeFile(join(cwd, 'b'), 'other');
    expect(await jvs.json(['restore', 'one'], { cwd })).toMatchObject({ written: 1, removed: 0 });
    const after = await stat(join(cwd, 'a'));
    expect([after.ino, after.ctimeMs]).toEqual([before.ino, before.ctimeMs]);
  });

  test('is followed by a snapshot that grows a new branch; nothing vanishes from history', async () => {
    const cwd = await fresh();
    const one = await take(cwd, 'one');
    const two = await take(cwd, 'two');
    await jvs.ok(['restore', 'one'], { cwd });
    const three = await take(cwd, 'three');
    expect(three.parent_id).toBe(one.snapshot_id);
    const ids = (await jvs.json<Snapshot[]>(['history'], { cwd })).map(({ snapshot_id: id }) => id);
    expect(ids).toEqual([three, two, one].map(({ snapshot_id: id }) => id));
  });

  test('chooses from a list when asked to, and a refusal changes nothing', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'f'), '1');
    await take(cwd, 'one');
    await writeFile(join(cwd, 'f'), '2');
    await take(cwd, 'two');
    expect((await jvs.jvs(['restore', '-i', 'one'], { cwd, input: '\n' })).code).toBe(130);
    expect(await readText(join(cwd, 'f'))).toBe('2');
    const chosen = await jvs.jvs(['restore', '-i', 'ONE'], { cwd, input: '1\n' });
    expect(chosen).toMatchObject({ code: 0, stderr: expect.stringMatching(/\[1-1\] $/) });
    expect(await readText(join(cwd, 'f'))).toBe('1');
  });
});

describe('history and diff', () => {
  test('history filters by tag, text and number, over one worktree or all', async () => {
    const cwd = await fresh();
    await take(cwd, 'alpha', '--tag', 'x', '--tag', 'y');
    await take(cwd, 'beta', '--tag', 'x');
    await jvs.ok(['worktree', 'fork', 'side'], { cwd });
    await take(join(cwd, '../worktrees/side/main'), 'gamma');
    const notes = async (...args: string[]): Promise<string[]> =>
      (await jvs.json<Snapshot[]>(['history', ...args], { cwd })).map(({ note }) => note);
    expect(await notes()).toEqual(['beta', 'alpha']);
    expect(await notes('--all')).toEqual(['gamma', 'beta', 'alpha']);
    expect(await notes('--tag', 'x', '--tag', 'y')).toEqual(['alpha']);
    expect(await notes('--grep', 'bet')).toEqual(['beta']);
    expect(await notes('--all', '-n', '1')).toEqual(['gamma']);
    const side = await jvs.json<Snapshot[]>(['history'], { cwd: join(cwd, '../worktrees/side/main') });
    expect(side.map(({ note }) => note)).toEqual(['gamma', 'beta', 'alpha']);
    expect(await jvs.ok(['history'], { cwd })).not.toContain('\u001b');
  });

  test('diff with one word compares with the worktree as it is now, with two compares snapshots', async () => {
    const cwd = await fresh();
    await mkdir(join(cwd, 'd'));
    await writeFile(join(cwd, 'd/same'), 's');
    await writeFile(join(cwd, 'mode'), 'm', { mode: 0o644 });
    await writeFile(join(cwd, 'gone'), 'g');
    await take(cwd, 'one');
    expect(await jvs.ok(['diff'], { cwd })).toBe('');
    await jvs.bash('chmod 755 mode; rm gone; echo n > new; mkdir e', { cwd });
    expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('A e/\nD gone\nm mode  (mode 0644 to 0755)\nA new\n');
    await take(cwd, 'two');
    const found = await jvs.json<Record<string, unknown>>(['diff', 'one', 'two'], { cwd });
    expect(found).toMatchObject({ total_added: 2, total_removed: 1, total_modified: 0, total_metadata: 1 });
    expect(await jvs.ok(['diff', 'two', 'two', '--stat'], { cwd })).toMatch(/^0 added, 0 removed/);
  });
});

describe('worktrees', () => {
  test('fork, create, list, path, rename and remove', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'f'), '1');
    const one = await take(cwd, 'one', '--tag', 'good');
    const fork = await jvs.json<{ name: string; path: string }>(['worktree', 'fork', 'good'], { cwd });
    expect(fork.name).toBe(`fork-${one.snapshot_id.slice(0, 8)}`);
    expect(await readText(join(fork.path, 'f'))).toBe('1');
    await jvs.ok(['worktree', 'create', 'blank'], { cwd });
    await jvs.ok(['worktree', 'create', 'full', '--from', 'good'], { cwd });
    const full = (await jvs.ok(['worktree', 'path', 'full'], { cwd })).trim();
    await writeFile(join(full, 'f'), 'gone');
    await jvs.ok(['restore', 'HEAD', '--discard'], { cwd: full });
    expect(await readText(join(full, 'f'))).toBe('1');
    await writeFile(join(full, 'f'), '2');
    const taken = await take(full, 'in full');
    expect(taken).toMatchObject({ parent_id: one.snapshot_id, worktree_name: 'full' });
    expect(await readText(join(cwd, 'f'))).toBe('1');
    await jvs.ok(['worktree', 'rename', 'full', 'renamed'], { cwd });
    await appendFile(join(cwd, '../worktrees/renamed/main/f'), '3');
    const refused = await jvs.jvs(['worktree', 'remove', 'renamed'], { cwd });
    expect(refused).toMatchObject({ code: 7 });
    await jvs.ok(['worktree', 'remove', 'renamed', '--force'], { cwd });
    expect(existsSync(join(cwd, '../worktrees/renamed'))).toBe(false);
    const names = (await jvs.json<{ name: string }[]>(['wt', 'list'], { cwd })).map(({ name }) => name);
    expect(names.sort()).toEqual(['blank', fork.name, 'main'].sort());
    expect((await jvs.jvs(['worktree', 'remove', 'main'], { cwd })).code).toBe(7);
    expect((await jvs.jvs(['worktree', 'fork', 'HEAD', 'blank'], { cwd })).code).toBe(6);
    await jvs.ok(['restore', taken.snapshot_id], { cwd });
    expect(await readText(join(cwd, 'f'))).toBe('2');
  });
});

describe('answers', () => {
  test('exit codes are distinct, and errors under --json are JSON on stderr with nothing on stdout', async () => {
    const cwd = await fresh();
    const outside = await jvs.jvs(['history', '--json']);
    expect(outside).toMatchObject({ code: 5, stdout: '' });
    expect(JSON.parse(outside.stderr)).toMatchObject({
      error: { code: 'not_found', hint: expect.any(String) },
    });
    expect((await jvs.jvs(['frobnicate'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['history', '--nope'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['unpin', 'HEAD'], { cwd })).code).toBe(5);
    expect((await jvs.jvs(['--version'])).stdout).toMatch(/^jvs \d/);
    expect((await jvs.jvs(['restore', '--help'])).stdout).toMatch(/--latest-tag TAG/);
  });

  test('colours are for terminals, and for those who want them', async () => {
    const cwd = await fresh();
    await take(cwd, 'one');
    const escapes = async (command: string): Promise<boolean> => {
      const { code, stdout } = await jvs.bash(command, { cwd });
      expect(code).toBe(0);
      return stdout.includes('\u001b[');
    };
    const onTerminal = (command: string) => `script -qec '${command}' /dev/null`;
    expect(await escapes(onTerminal('jvs history'))).toBe(true);
    expect(await escapes(onTerminal('jvs history --no-color'))).toBe(false);
    expect(await escapes(onTerminal('NO_COLOR=1 jvs history'))).toBe(false);
    expect(await escapes('jvs history')).toBe(false);
    expect(await escapes('jvs history > file; cat file')).toBe(false);
    expect((await jvs.bash('jvs history > /dev/null', { cwd })).code).toBe(0);
  });

  test('what takes a while counts what it reads on the terminal, and takes the line away again', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'large'), Buffer.alloc(64 << 20, 'x'));
    const counts = async (command: string): Promise<boolean> => {
      const { code, stdout } = await jvs.bash(command, { cwd, env: { JVS_PROGRESS_AFTER_MS: '0' } });
      expect(code).toBe(0);
      const rest = stdout.slice(stdout.lastIndexOf('\r\u001b[K') + 1);
      expect(rest).not.toContain(' read');
      return /\r\d+ files, [\d.]+ [KM]iB read\u001b\[K\r/.test(stdout);
    };
    const onTerminal = (command: string) => `script -qec '${command}' /dev/null`;
    expect(await counts(onTerminal('jvs snapshot one'))).toBe(true);
    await writeFile(join(cwd, 'large'), Buffer.alloc(64 << 20, 'y'));
    expect(await counts(onTerminal('jvs snapshot --json two'))).toBe(true);
    expect(await counts(onTerminal('jvs verify --all'))).toBe(true);
    expect(await counts(onTerminal('jvs verify --all --no-progress'))).toBe(false);
    expect(await counts('jvs verify --all 2>&1')).toBe(false);
  });

  test('settings are kept, checked and used', async () => {
    const cwd = await fresh();
    await jvs.ok(['config', 'set', 'default_tags', 'always'], { cwd });
    expect((await take(cwd, 'one')).tags).toEqual(['always']);
    await jvs.ok(['config', 'set', 'auto_snapshot', 'false'], { cwd });
    await writeFile(join(cwd, 'f'), 'x');
    expect(await jvs.json(['restore', 'one'], { cwd })).toMatchObject({ saved_snapshot_id: null });
    await jvs.ok(['config', 'set', 'output_format', 'json'], { cwd });
    expect(JSON.parse(await jvs.ok(['info'], { cwd }))).toMatchObject({ total_snapshots: 1 });
    expect((await jvs.jvs(['config', 'set', 'nothing', '1'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['config', 'set', 'gc_keep_hours', 'soon'], { cwd })).code).toBe(2);
  });

  test('completion scripts are valid for bash and name every command', async () => {
    const script = await jvs.ok(['completion', 'bash']);
    for (const name of ['snapshot', 'restore', 'worktree', 'gc']) expect(script).toContain(name);
    expect((await jvs.run('bash', ['--norc', '-n'], { input: script })).code).toBe(0);
    expect(await jvs.ok(['completion', 'fish'])).toContain('complete -c jvs');
  });

  test('commands work from the root, from a worktree and from below, and with -C', async () => {
    const cwd = await fresh();
    await mkdir(join(cwd, 'deep/er'), { recursive: true });
    await take(join(cwd, '..'), 'from the root');
    await take(join(cwd, 'deep/er'), 'from below');
    expect(
      (await jvs.json<Snapshot[]>(['-C', cwd, 'history'])).map(({ worktree_name }) => worktree_name),
    ).toEqual(['main', 'main']);
  });
});

describe('collection', () => {
  test('deletes only what no worktree, tag or pin protects, and frees its space', async () => {
    const cwd = await fresh();
    const base = await take(cwd, 'base');
    await writeFile(join(cwd, 'large'), Buffer.alloc(600_000, 1));
    const lost = await take(cwd, 'lost');
    await jvs.ok(['restore', base.snapshot_id], { cwd });
    await writeFile(join(cwd, 'large'), Buffer.alloc(600_000, 2));
    const pinned = await take(cwd, 'pinned');
    await jvs.ok(['pin', 'pinned', '--reason', 'for later'], { cwd });
    await rm(join(cwd, 'large'));
    const tagged = await take(cwd, 'tagged', '--tag', 'keep');
    const latest = await take(cwd, 'latest');
    await jvs.ok(['restore', tagged.snapshot_id], { cwd });
    expect((await jvs.json<{ to_delete: string[] }>(['gc', 'plan'], { cwd })).to_delete).toEqual([]);
    const plan = await jvs.json<{ plan_id: string; to_delete: string[] }>(
      ['gc', 'plan', '--keep-hours', '0'],
      { cwd },
    );
    expect(plan.to_delete).toEqual([lost.snapshot_id]);
    const result = await jvs.json<{ freed_bytes: number }>(['gc', 'run', '--plan-id', plan.plan_id], { cwd });
    expect(result.freed_bytes).toBeGreaterThan(500_000);
    const left = (await jvs.json<Snapshot[]>(['history', '--all'], { cwd })).map(({ snapshot_id: id }) => id);
    expect(left).toEqual([latest, tagged, pinned, base].map(({ snapshot_id: id }) => id));
    await jvs.ok(['verify', '--all'], { cwd });
    await jvs.ok(['restore', 'pinned'], { cwd });
    expect((await readText(join(cwd, 'large'))).length).toBe(600_000);
  });

  test('keeps what the worktrees grew from, unless it is told to delete that too', async () => {
    const cwd = await fresh();
    const [one, two] = [await take(cwd, 'one'), await take(cwd, 'two')];
    await jvs.ok(['worktree', 'fork', 'side'], { cwd });
    const three = await take(cwd, 'three');
    await jvs.ok(['restore', 'one'], { cwd });
    const plan = async (...args: string[]) =>
      jvs.json<{ to_delete: string[]; protected: Record<string, string[]> }>(
        ['gc', 'plan', '--keep-hours', '0', ...args],
        { cwd },
      );
    const kept = await plan();
    expect(kept.to_delete).toEqual([]);
    expect(kept.protected[one.snapshot_id]).toEqual(['head', 'ancestor']);
    expect(kept.protected[two.snapshot_id]).toEqual(['head', 'ancestor']);
    await jvs.ok(['worktree', 'remove', 'side'], { cwd });
    expect((await plan()).to_delete).toEqual([]);
    const all = await plan('--collect-ancestors');
    expect(all.to_delete).toEqual([two.snapshot_id]);
    expect(all.protected[three.snapshot_id]).toEqual(['latest']);
    await jvs.ok(['gc', 'run'], { cwd });
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('an empty plan id names no plan', async () => {
    const cwd = await fresh();
    await take(cwd, 'one');
    await take(cwd, 'two');
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    expect((await jvs.jvs(['gc', 'run', '--plan-id', ''], { cwd })).code).toBe(5);
    expect((await jvs.jvs(['gc', 'run', '--plan-id='], { cwd })).code).toBe(5);
    expect(await jvs.json<Snapshot[]>(['history'], { cwd })).toHaveLength(2);
  });

  test('refuses a plan whose snapshots were protected meanwhile', async () => {
    const cwd = await fresh();
    await take(cwd, 'one');
    await take(cwd, 'two');
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    await jvs.ok(['pin', 'one'], { cwd });
    expect((await jvs.jvs(['gc', 'run'], { cwd })).code).toBe(8);
    expect(await jvs.json<Snapshot[]>(['history'], { cwd })).toHaveLength(2);
    await jvs.ok(['unpin', 'one'], { cwd });
    await jvs.ok(['gc', 'run'], { cwd });
    expect((await jvs.json<Snapshot[]>(['history'], { cwd })).map(({ note }) => note)).toEqual(['two']);
  });

  test('a renamed worktree, and one that a collection went through, go on', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'a'), 'one');
    await take(cwd, 'one');
    await take(cwd, 'two');
    await jvs.ok(['worktree', 'fork', 'HEAD', 'side'], { cwd });
    await jvs.ok(['worktree', 'rename', 'side', 'other'], { cwd });
    const other = join(cwd, '../worktrees/other/main');
    await appendFile(join(other, 'a'), ' side');
    await jvs.ok(['snapshot', 'aside'], { cwd: other });
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    await jvs.ok(['gc', 'run'], { cwd });
    await appendFile(join(cwd, 'a'), ' main');
    await jvs.ok(['snapshot', 'three'], { cwd });
    const history = await jvs.json<Snapshot[]>(['history', '--all'], { cwd });
    expect(history.map(({ note, worktree_name }) => `${worktree_name} ${note}`)).toEqual([
      'main three',
      'other aside',
      'main two',
    ]);
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('of a great many snapshots is read in one go', async () => {
    const cwd = await fresh();
    const kept = await take(cwd, 'kept');
    const ids = Array.from({ length: 50_000 }, (_, at) => `x${String(at).padStart(15, '0')}`);
    const line = (seq: number, type: string, data: unknown): string =>
      JSON.stringify({ seq, at: '', by: '', type, data, prev: '', hash: '0'.repeat(64) });
    const { warnings: _, ...record } = kept as Snapshot & { warnings: string[] };
    const snapshots = ids.map((id, at) =>
      line(4 + at, 'snapshot', { snapshot: { ...record, snapshot_id: id }, saved_root_hash: null }),
    );
    const mark = line(4 + ids.length, 'gc_mark', { plan_id: 'p', snapshots: ids.slice(1), pid: 1 });
    await appendFile(
      join(cwd, '../.jvs/log.jsonl'),
      `${[...snapshots, mark, line(5 + ids.length, 'gc_done', {})].join('\n')}\n`,
    );
    // Its own time and not that of a busy machine: one that reads it again for each snapshot needs many minutes.
    const command = ['--cpu=60', join(jvs.bin, 'jvs'), 'snapshot', 'after'];
    expect(await jvs.run('prlimit', command, { cwd })).toMatchObject({ code: 0 });
    expect((await jvs.json<Snapshot[]>(['history'], { cwd })).map(({ snapshot_id: id }) => id)).toEqual([
      expect.any(String),
      ids[0],
      kept.snapshot_id,
    ]);
  });

  test('what is shared with a snapshot that stays is not freed', async () => {
    const cwd = await fresh();
    for (let file = 0; file < 50; file += 1)
      await writeFile(join(cwd, `f${file}`), `content ${file} ${'x'.repeat(5000)}`);
    await take(cwd, 'old');
    await writeFile(join(cwd, 'f7'), 'changed');
    await take(cwd, 'new');
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    await jvs.ok(['gc', 'run'], { cwd });
    await jvs.ok(['verify', '--all'], { cwd });
    await jvs.bash('rm -f f*', { cwd });
    await jvs.ok(['restore', 'new', '--discard'], { cwd });
    expect(await readText(join(cwd, 'f8'))).toBe(`content 8 ${'x'.repeat(5000)}`);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });
});

describe('several commands at once', () => {
  test('a collection beside snapshots takes nothing of what they store', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'large'), Buffer.alloc(400_000, 0));
    await take(cwd, 'base');
    for (let round = 1; round <= 6; round += 1) {
      // What the collection is about to delete is what the snapshots store again.
      await writeFile(join(cwd, 'large'), Buffer.alloc(400_000, round % 2));
      await writeFile(join(cwd, 'small'), `small ${round % 2}`);
      await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
      const [collected] = await Promise.all([
        jvs.jvs(['gc', 'run'], { cwd }),
        take(cwd, `a${round}`),
        take(cwd, `b${round}`),
      ]);
      expect([0, 8]).toContain(collected.code);
      await jvs.ok(['verify', '--all'], { cwd });
    }
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
  });

  test('snapshots of one worktree queue up and form one line', async () => {
    const cwd = await fresh();
    await take(cwd, 'base');
    await Promise.all(['a', 'b', 'c', 'd'].map((note) => take(cwd, note)));
    const all = (await jvs.json<Snapshot[]>(['history'], { cwd })).reverse();
    expect(all).toHaveLength(5);
    all.slice(1).forEach((snapshot, index) => {
      expect(snapshot.parent_id).toBe(all[index]?.snapshot_id);
    });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
  });
});
