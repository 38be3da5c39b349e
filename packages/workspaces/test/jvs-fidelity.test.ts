import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { digestOf, JvsFixture, readText } from './jvs-fixture.ts';

// Many real processes: on a machine with much else to do they take their time.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

let jvs: JvsFixture;
const places: Record<string, string> = {};
const mounted: MountedFilesystem[] = [];
const kinds = (['plain', 'btrfs', 'xfs'] as const).filter((kind) => kind === 'plain' || canMount(kind));
const engines: Readonly<Record<string, string>> = { btrfs: 'btrfs', xfs: 'reflink-copy' };

beforeAll(async () => {
  jvs = await JvsFixture.create();
  places.plain = jvs.work;
  for (const kind of kinds) {
    if (kind === 'plain') continue;
    const filesystem = await MountedFilesystem.create(kind, jvs.home);
    mounted.push(filesystem);
    places[kind] = filesystem.path;
  }
});
afterAll(async () => {
  for (const filesystem of mounted) await filesystem[Symbol.asyncDispose]();
  await jvs[Symbol.asyncDispose]();
});

/** One of everything that a directory can hold. */
const everything = `
mkdir -p dirs/empty 'dirs/with space' modes links special attributes names
for mode in 600 644 755 4755 2711 400; do echo $mode > modes/$mode; chmod $mode modes/$mode; done
mkdir -m 1777 modes/sticky; mkdir -m 500 modes/readonly
echo one > links/first; ln links/first links/second; ln links/first dirs/third
ln -s nowhere links/dangling; ln -s ../modes/644 links/good; ln -s . links/self
mkfifo -m 640 special/fifo
truncate -s 8M special/hole; printf end | dd of=special/hole bs=1 seek=6000000 conv=notrunc status=none
truncate -s 100K special/small-hole; printf x | dd of=special/small-hole bs=1 seek=90000 conv=notrunc status=none
head -c 3000000 /dev/urandom > special/large
: > special/empty
printf 'not utf-8' > "$(printf 'names/caf\\xe9')"; mkdir "$(printf 'names/d\\xff')"; echo y > "$(printf 'names/d\\xff/y')"
echo n > $'names/new\\nline'; echo q > 'names/"quote'\\''s"'; echo u > names/ünïcödé
echo j > .jvs-tmp-user; echo r > .READY; echo s > .jvs
setfattr -n user.comment -v 'a value' attributes/ ; echo a > attributes/file; setfattr -n user.x -v 0x00ff01 attributes/file
touch -h -d '2001-02-03 04:05:06.123456789' links/dangling modes/644; touch -d '1969-12-31 23:59:58.5 UTC' modes/755
touch -d '2010-01-01 00:00:00.987654321' dirs/empty names`;

const asRoot = `
chown 1234:2345 modes/600; chown -h 4321:5432 links/good; chown 7:8 dirs/empty
setfacl -m u:1234:rw attributes/file; setfacl -d -m g:99:rx attributes
mknod special/null c 1 3
touch -d '2011-11-11 11:11:11' modes dirs links special attributes names`;

const wreck = `
rm -rf dirs modes/4755 names special/hole links; mkdir special/fifo.d; rm special/fifo; mkdir special/fifo
chmod 777 modes/sticky; echo more >> special/large; echo changed > attributes/file; setfattr -x user.comment attributes
ln -s x dirs; echo new > brand-new; chmod 000 modes/644; touch .`;

describe.each(kinds)('on %s', (kind) => {
  const workspace = async (name: string): Promise<string> => {
    const cwd = places[kind] ?? '';
    const { engine } = await jvs.json<{ engine: string }>(['init', name], { cwd });
    if (engines[kind]) expect(engine).toBe(engines[kind]);
    return join(cwd, name, 'main');
  };

  test('a snapshot gives back modes, owners, times, links, holes, attributes, special files and strange names', async () => {
    const cwd = await workspace('everything');
    const made = await jvs.bash(`${everything}\n${process.getuid?.() === 0 ? asRoot : ''}`, { cwd });
    expect(made).toMatchObject({ code: 0, stderr: '' });
    const before = await digestOf(cwd);
    await jvs.ok(['snapshot', 'all', '--tag', 'all'], { cwd });
    expect(await digestOf(cwd)).toBe(before);
    expect((await jvs.bash(wreck, { cwd })).code).toBe(0);
    await jvs.ok(['restore', 'all'], { cwd });
    expect(await digestOf(cwd)).toBe(before);
    const hole = await stat(join(cwd, 'special/hole'));
    expect(hole.blocks * 512).toBeLessThan(1_000_000);
    expect((await stat(join(cwd, 'special/small-hole'))).blocks * 512).toBeLessThan(60_000);
    expect((await stat(join(cwd, 'links/first'))).nlink).toBe(3);
    expect(await jvs.ok(['diff', 'all'], { cwd })).toBe('');
    await jvs.ok(['worktree', 'fork', 'all', 'copy'], { cwd });
    expect(await digestOf(join(cwd, '../worktrees/copy/main'))).toBe(before);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    const wrecked = (
      await jvs.json<{ snapshot_id: string; automatic: boolean }[]>(['history'], { cwd })
    ).find(({ automatic }) => automatic);
    await jvs.ok(['restore', wrecked?.snapshot_id ?? ''], { cwd });
    expect(await readText(join(cwd, 'brand-new'))).toBe('new\n');
    await jvs.ok(['restore', 'all'], { cwd });
    expect(await digestOf(cwd)).toBe(before);
  });

  test('hard links become separate files and separate files hard links, and back', async () => {
    const cwd = await workspace('links');
    await jvs.bash('echo a > a; ln a b; mkdir z; ln a z/c', { cwd });
    await jvs.ok(['snapshot', 'linked'], { cwd });
    await jvs.bash('rm b z/c; echo a > b; echo a > z/c; ln b z/d', { cwd });
    await jvs.ok(['snapshot', 'apart'], { cwd });
    const links = async (...names: string[]): Promise<number[]> =>
      Promise.all(names.map(async (name) => (await stat(join(cwd, name))).nlink));
    await jvs.ok(['restore', 'linked'], { cwd });
    expect(await links('a', 'b', 'z/c')).toEqual([3, 3, 3]);
    await jvs.ok(['restore', 'apart'], { cwd });
    expect(await links('a', 'b', 'z/c', 'z/d')).toEqual([1, 2, 1, 2]);
    await jvs.ok(['restore', 'linked'], { cwd });
    await appendFile(join(cwd, 'z/c'), 'more');
    expect(await readText(join(cwd, 'a'))).toBe('a\nmore');
    await jvs.ok(['restore', 'linked'], { cwd });
    expect(await readText(join(cwd, 'b'))).toBe('a\n');
    expect(await links('a', 'b', 'z/c')).toEqual([3, 3, 3]);
    await rename(join(cwd, 'z'), join(cwd, '0'));
    await jvs.ok(['snapshot', 'moved'], { cwd });
    await jvs.ok(['restore', 'linked'], { cwd });
    expect(await links('a', 'b', 'z/c')).toEqual([3, 3, 3]);
    expect(await jvs.ok(['diff', 'linked'], { cwd })).toBe('');
  });

  test('a change that keeps size and time is seen', async () => {
    const cwd = await workspace('sly');
    const file = join(cwd, 'f');
    for (let round = 0; round < 5; round += 1) {
      await writeFile(file, 'aaaa');
      await utimes(file, 1_000_000, 1_000_000);
      await jvs.ok(['snapshot', 'a'], { cwd });
      await writeFile(file, 'bbbb');
      await utimes(file, 1_000_000, 1_000_000);
      await jvs.ok(['snapshot', 'b', '--tag', `b${round}`], { cwd });
      await writeFile(file, 'cccc');
      await utimes(file, 1_000_000, 1_000_000);
      await jvs.ok(['restore', `b${round}`], { cwd });
      expect(await readText(file)).toBe('bbbb');
    }
  });

  test('a large file that was touched or renamed is not stored again', async () => {
    const cwd = await workspace('touched');
    const stored = async (): Promise<string> =>
      (await jvs.bash("find .jvs/blobs -type f -printf '%i %C@\\n' | sort", { cwd: join(cwd, '..') })).stdout;
    await jvs.bash('head -c 3000000 /dev/urandom > one; head -c 400000 /dev/urandom > two', { cwd });
    await jvs.ok(['snapshot', 'first'], { cwd });
    const before = await stored();
    for (const change of ['touch one two', 'mv one three; mv two one', 'cp three copy']) {
      await jvs.bash(change, { cwd });
      const { new_bytes: newBytes } = await jvs.json<{ new_bytes: number }>(['snapshot', change], { cwd });
      expect(newBytes).toBeLessThan(4096);
    }
    expect(await stored()).toBe(before);
    // Content that this worktree has never had, and another one has.
    await jvs.ok(['worktree', 'create', 'other'], { cwd });
    const other = join(cwd, '../worktrees/other/main');
    await jvs.bash(`cp ${cwd}/three .`, { cwd: other });
    await jvs.ok(['snapshot', 'the same'], { cwd: other });
    expect(await stored()).toBe(before);
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test.each([
    ['dense', 'sparse'],
    ['sparse', 'dense'],
  ])('a file keeps its holes when the same content was stored %s first', async (first, second) => {
    const cwd = await workspace(`holes-${first}`);
    const make = {
      dense: 'head -c 4M /dev/zero > dense; printf end >> dense',
      sparse: 'truncate -s 4M sparse; printf end >> sparse',
    } as const;
    for (const which of [first, second] as (keyof typeof make)[]) {
      await jvs.bash(make[which], { cwd });
      await jvs.ok(['snapshot', which], { cwd });
    }
    await jvs.bash('rm dense sparse', { cwd });
    await jvs.ok(['restore', 'HEAD'], { cwd });
    expect((await stat(join(cwd, 'sparse'))).blocks * 512).toBeLessThan(1_000_000);
    expect((await jvs.bash('cmp dense sparse', { cwd })).code).toBe(0);
  });

  test('what did not change since the parent is not written again, also when it was moved', async () => {
    const cwd = await workspace('sharing');
    await mkdir(join(cwd, 'd'));
    for (let file = 0; file < 20; file += 1)
      await writeFile(join(cwd, `d/${file}`), `${file}`.repeat(20_000));
    await jvs.ok(['snapshot', 'one'], { cwd });
    const again = await jvs.json<{ new_bytes: number }>(['snapshot', 'two'], { cwd });
    expect(again.new_bytes).toBe(0);
    await writeFile(join(cwd, 'd/3'), 'other');
    const changed = await jvs.json<{ new_bytes: number }>(['snapshot', 'three'], { cwd });
    expect(changed.new_bytes).toBeLessThan(5_000);
    await rename(join(cwd, 'd'), join(cwd, 'e'));
    const moved = await jvs.json<{ new_bytes: number }>(['snapshot', 'four'], { cwd });
    expect(moved.new_bytes).toBeLessThan(5_000);
    await rm(join(cwd, 'e'), { recursive: true });
    await jvs.ok(['restore', 'one'], { cwd });
    expect(await readText(join(cwd, 'd/7'))).toBe('7'.repeat(20_000));
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('collection on this engine leaves what remains whole', async () => {
    const cwd = await workspace('collected');
    for (const note of ['one', 'two', 'three']) {
      await writeFile(join(cwd, note), note.repeat(200_000));
      await jvs.ok(['snapshot', note], { cwd });
    }
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    expect(await jvs.json(['gc', 'run'], { cwd })).toMatchObject({ deleted: 2 });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    await rm(join(cwd, 'one'));
    await jvs.ok(['restore', 'HEAD'], { cwd });
    expect(await readText(join(cwd, 'one'))).toBe('one'.repeat(200_000));
  });
});

describe('engines', whereMounts('btrfs'), () => {
  test('a subvolume inside a worktree is not lost: the snapshot is taken another way, aloud', async () => {
    const cwd = join(places.btrfs ?? '', 'nested', 'main');
    await jvs.ok(['init', 'nested'], { cwd: places.btrfs ?? '' });
    await jvs.bash('mkdir -p a/b; echo x > a/b/x', { cwd });
    expect(await jvs.json(['snapshot', 'before'], { cwd })).toMatchObject({ engine: 'btrfs' });
    const made = 'btrfs subvolume create a/b/inner; echo deep > a/b/inner/file';
    expect((await jvs.bash(made, { cwd })).code).toBe(0);
    // The second time nothing has changed since the first, and it is still not in a clone of the whole.
    for (const note of ['n', 'again']) {
      const taken = await jvs.jvs(['snapshot', note, '--json'], { cwd });
      expect(taken.stderr).toMatch(/inner is a btrfs subvolume of its own/);
      expect(JSON.parse(taken.stdout)).toMatchObject({ engine: 'reflink-copy', requested_engine: 'btrfs' });
    }
    await rm(join(cwd, 'a/b/inner/file'));
    await jvs.ok(['restore', 'again'], { cwd });
    expect(await readText(join(cwd, 'a/b/inner/file'))).toBe('deep\n');
  });

  test('a fork of either of two snapshots of one tree has nothing to restore', async () => {
    const cwd = join(places.btrfs ?? '', 'twice', 'main');
    await jvs.ok(['init', 'twice'], { cwd: places.btrfs ?? '' });
    await jvs.bash('mkdir d; echo b > d/b; head -c 300000 /dev/urandom > large', { cwd });
    for (const tag of ['one', 'two']) await jvs.ok(['snapshot', tag, '--tag', tag], { cwd });
    for (const tag of ['one', 'two']) {
      await jvs.ok(['worktree', 'fork', tag, `of-${tag}`], { cwd });
      const side = join(cwd, `../worktrees/of-${tag}/main`);
      expect(await jvs.jvs(['restore', 'HEAD'], { cwd: side })).toMatchObject({ code: 0, stderr: '' });
      expect(await jvs.json(['snapshot', 'again'], { cwd: side })).toMatchObject({ new_bytes: 0 });
    }
  });

  test('a snapshot holds what was there when it was cloned, whatever is done to the worktree meanwhile', async () => {
    const cwd = join(places.btrfs ?? '', 'busy', 'main');
    await jvs.ok(['init', 'busy'], { cwd: places.btrfs ?? '' });
    await jvs.bash('for d in {1..30}; do mkdir d$d; for f in {1..30}; do echo $f > d$d/$f; done; done', {
      cwd,
    });
    await jvs.ok(['snapshot', 'base'], { cwd });
    const churn =
      'while :; do for d in {1..10}; do echo $RANDOM > d$d/7; mv d$d/8 d$d/8x; mv d$d/8x d$d/8; done; : | tee d{11..30}/new; rm d{11..30}/new; done';
    const busy = spawn('bash', ['--norc', '-c', churn], { cwd, stdio: 'ignore' });
    try {
      for (let round = 0; round < 20; round += 1) await jvs.ok(['snapshot', `round ${round}`], { cwd });
    } finally {
      const ended = once(busy, 'close');
      busy.kill('SIGKILL');
      await ended;
    }
    // Everything that is stored is compared with what was written down about it.
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('no snapshot has a file cut short that a program writes aside and then renames', async () => {
    const cwd = join(places.btrfs ?? '', 'aside', 'main');
    await jvs.ok(['init', 'aside'], { cwd: places.btrfs ?? '' });
    const program = `
import os
n = 0
while True:
    for file in range(30):
        n += 1
        with open('aside', 'w') as out: out.write(f'{n} ' * (20, 1000, 15000)[file % 3] + 'end')
        os.rename('aside', f'file-{file}')`;
    const busy = spawn('python3', ['-c', program], { cwd, stdio: 'ignore' });
    try {
      for (let round = 0; round < 60; round += 1) await jvs.ok(['snapshot', `round ${round}`], { cwd });
    } finally {
      const ended = once(busy, 'close');
      busy.kill('SIGKILL');
      await ended;
    }
    const cut = `for file in */file-*; do [[ $(tail -c 3 $file) = end ]] || echo $file; done`;
    const found = await jvs.bash(cut, { cwd: join(cwd, '../.jvs/trees') });
    expect(found).toMatchObject({ code: 0, stdout: '' });
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('JVS_ENGINE forces an engine for one snapshot, and its parent may be of another', async () => {
    const cwd = join(places.btrfs ?? '', 'mixed', 'main');
    await jvs.ok(['init', 'mixed'], { cwd: places.btrfs ?? '' });
    await writeFile(join(cwd, 'f'), 'x'.repeat(400_000));
    await writeFile(join(cwd, 'g'), 'small');
    const forced = { cwd, env: { JVS_ENGINE: 'copy' } };
    expect(await jvs.json(['snapshot', 'one'], { cwd })).toMatchObject({ engine: 'btrfs', storage: 'tree' });
    expect(await jvs.json(['snapshot', 'two'], forced)).toMatchObject({ engine: 'copy', storage: 'objects' });
    expect(await jvs.json(['snapshot', 'three'], { cwd })).toMatchObject({ engine: 'btrfs' });
    await writeFile(join(cwd, 'f'), 'gone');
    for (const note of ['two', 'one', 'three']) {
      await writeFile(join(cwd, 'g'), note);
      await jvs.ok(['restore', note, '--discard'], { cwd });
      expect(await readText(join(cwd, 'g'))).toBe('small');
      expect((await readText(join(cwd, 'f'))).length).toBe(400_000);
    }
    await jvs.ok(['verify', '--all'], { cwd });
  });
});
