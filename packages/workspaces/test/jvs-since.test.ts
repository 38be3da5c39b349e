import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { canMount, MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { JvsFixture } from './jvs-fixture.ts';

vi.setConfig({ testTimeout: 600_000, hookTimeout: 300_000 });

/** On btrfs root can ask what changed since the last snapshot; what did not is then not looked at. */
let jvs: JvsFixture;
let btrfs: MountedFilesystem;
let counter = 0;
beforeAll(async () => {
  if (!canMount('btrfs')) return;
  jvs = await JvsFixture.create();
  btrfs = await MountedFilesystem.create('btrfs', jvs.home);
});
afterAll(async () => {
  await btrfs?.[Symbol.asyncDispose]();
  await jvs?.[Symbol.asyncDispose]();
});

const sh = async (script: string, cwd: string): Promise<string> => {
  const { code, stdout, stderr } = await jvs.bash(script, { cwd });
  if (code !== 0) throw new Error(`${script}: ${stderr}`);
  return stdout;
};

const workspace = async (): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: btrfs.path });
  const cwd = join(btrfs.path, `ws-${counter}`, 'main');
  await sh(
    'for d in {1..8}; do mkdir -p d$d/e; for f in {1..20}; do echo $d $f | tee d$d/$f > d$d/e/$f; done; done',
    cwd,
  );
  await jvs.ok(['snapshot', 'base', '--tag', 'base'], { cwd });
  return cwd;
};

/** Takes one and compares it with what it holds: the hash of all, read anew, and the counts of find. */
const snapshot = async (cwd: string): Promise<void> => {
  interface Taken {
    readonly snapshot_id: string;
    readonly engine: string;
    readonly files: number;
    readonly bytes: number;
  }
  const taken = await jvs.json<Taken>(['snapshot', 'next'], { cwd });
  expect(taken.engine).toBe('btrfs');
  await jvs.ok(['verify', 'HEAD'], { cwd });
  const found = await sh("find . ! -type d ! -type s -printf '%y %i %s\\n' | sort -u", cwd);
  const files = found
    .trim()
    .split('\n')
    .map((line) => line.split(' '));
  const names = Number(await sh('find . ! -type d ! -type s | wc -l', cwd));
  const bytes = files.reduce((sum, [type, , size]) => sum + (type === 'f' ? Number(size) : 0), 0);
  expect({ files: taken.files, bytes: taken.bytes }).toEqual({ files: names, bytes });
};

const changes: Readonly<Record<string, string>> = {
  'content that grows': 'echo more >> d1/1',
  'content of the same size and time': 't=$(stat -c %y d1/2); echo 9 9 > d1/2; touch -d "$t" d1/2',
  'content through a mapping':
    "python3 -c \"import mmap; f = open('d1/3', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 65\"",
  'modes, owners and attributes':
    'chmod 600 d2/1; chown 3:4 d2/2; setfattr -n user.x -v 1 d2/3; setfacl -m u:7:r d2/4',
  'those of directories':
    'chmod 700 d2; chown 3:4 d3/e; setfattr -n user.x -v 1 d4; touch -d 2002-02-02 d4/e; chmod 711 .',
  'a file that comes, one that goes, one that is renamed': 'echo new > d3/new; rm d3/1; mv d3/2 d3/second',
  'a file that takes the place of another': 'echo other > other; mv other d3/3; mv d3/4 d4/4',
  'a directory that is moved': 'mv d5 d4/below',
  'directories that change places, with others in them unchanged': 'mv d6 x; mv d7 d6; mv x d7',
  'a directory that is replaced by one made anew': 'rm -r d8; mkdir -p d8/e; echo new > d8/e/1',
  'a directory that becomes a file, and a file a directory': 'rm -r d6/e; echo f > d6/e; rm d6/1; mkdir d6/1',
  'symbolic links, pipes, empty directories': 'ln -s nowhere d1/link; mkfifo d1/fifo; mkdir d1/empty',
  'a link that points elsewhere': 'ln -sfn elsewhere d1/link',
  'a socket': 'python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'d1/socket\')"',
  'no socket any more': 'rm d1/socket',
  'a second name': 'ln d1/5 d2/five',
  'the directory of the first is moved': 'mv d1 z1',
  'and moved back': 'mv z1 d1; rm d2/five',
  'a second name again, and a third': 'ln d1/5 d2/five; ln d1/5 a-fifth',
  'the first name goes': 'rm a-fifth',
  'one name is left': 'rm d2/five',
  nothing: 'true',
  'everything, which is more than to look at one by one': 'find . -type f -exec chmod g+w {} +',
  'after that one more': 'echo one >> d2/e/7',
};

describe('on btrfs, a snapshot after a change', whereMounts('btrfs'), () => {
  test('holds every kind of it', async () => {
    const cwd = await workspace();
    for (const change of Object.values(changes)) {
      await sh(change, cwd);
      await snapshot(cwd);
    }
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });

  test('looks at nothing that did not change', async () => {
    const cwd = await workspace();
    // The second of these follows a restore.
    for (const note of ['one', 'two']) {
      await sh(`echo more >> d1/1; touch -a -d '2001-01-01 00:00:00' d5/e`, cwd);
      await jvs.ok(['snapshot', note], { cwd });
      expect((await stat(join(cwd, 'd5/e'))).atime.getFullYear()).toBe(2001);
      await jvs.ok(['restore', 'base'], { cwd });
    }
  });

  test('looks everywhere where rules come and go, and says each time what it leaves out', async () => {
    const cwd = await workspace();
    await sh('echo secret > d5/e/hidden', cwd);
    await snapshot(cwd);
    await sh('echo hidden > .jvsignore', cwd);
    await jvs.ok(['snapshot', 'with rules', '--tag', 'ruled'], { cwd });
    expect(await jvs.ok(['diff', 'next', 'ruled'], { cwd })).toMatch(/hidden/);
    await sh('rm .jvsignore', cwd);
    await snapshot(cwd);
    // A restore brings the rules, the next one takes them away.
    for (const tag of ['ruled', 'base']) {
      await jvs.ok(['restore', tag], { cwd });
      await sh('echo secret > d5/e/hidden; echo more >> d2/2', cwd);
      await jvs.ok(['snapshot', `on ${tag}`], { cwd });
      await jvs.ok(['verify', 'HEAD'], { cwd });
    }
    expect(await jvs.ok(['diff', 'base', 'HEAD'], { cwd })).toMatch(/hidden/);
    await sh('echo hidden > d5/.jvsignore', cwd);
    await jvs.ok(['snapshot', 'rules for a part'], { cwd });
    expect(await jvs.ok(['diff', 'on base', 'HEAD'], { cwd })).toMatch(/hidden/);
    await sh(
      'rm d5/.jvsignore; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'d6/socket\')"',
      cwd,
    );
    // The first walk may change when a directory was last read, which makes the second one look there again.
    for (const note of ['once', 'twice', 'three times']) {
      await sh('echo more >> d2/2', cwd);
      expect((await jvs.jvs(['snapshot', note], { cwd })).stderr).toMatch(/left out 1 socket:/);
    }
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('takes no other subvolume for the one that it knows', async () => {
    const cwd = await workspace();
    await sh('echo more >> d1/1', cwd);
    await jvs.ok(['snapshot', 'second'], { cwd });
    // Older than the index in all that it holds, and not what the index says.
    const oldest = '$(basename $(ls -rt trees/*.index | head -1) .index)';
    await sh(
      `cd ../.jvs && btrfs subvolume delete ../main && btrfs subvolume snapshot trees/${oldest} ../main`,
      cwd,
    );
    await jvs.ok(['snapshot', 'third'], { cwd });
    await jvs.ok(['verify', 'HEAD'], { cwd });
    expect(await jvs.ok(['diff', 'base', 'third'], { cwd })).toBe('');
  });

  test('takes no inode of another subvolume for one of its own', async () => {
    const cwd = await workspace();
    // The first read of a file changes it, as it notes the time; the next ones do not.
    await sh('grep -r nothing . || true', cwd);
    await snapshot(cwd);
    await sh('btrfs subvolume snapshot . nested; echo other > nested/d1/e/7', cwd);
    expect(await jvs.json(['snapshot', 'two'], { cwd })).toMatchObject({ engine: 'reflink-copy' });
    await sh('btrfs subvolume delete nested; mkdir -p nested; mv d1 nested', cwd);
    await snapshot(cwd);
  });

  test('finds a subvolume whose number is that of the directory that it replaces', async () => {
    await jvs.ok(['init', 'numbers'], { cwd: btrfs.path });
    const cwd = join(btrfs.path, 'numbers/main');
    await sh('mkdir p{1..800}; for d in p*; do echo $d > $d/f; done; find . > /dev/null', cwd);
    await snapshot(cwd);
    const replaced = await sh(
      `btrfs subvolume create ../other > /dev/null
       next=$(($(btrfs inspect-internal rootid ../other) + 1))
       name=$(find . -maxdepth 1 -name 'p*' -inum $next -printf %f)
       rm -r $name; btrfs subvolume create $name > /dev/null; echo other > $name/f
       test $(btrfs inspect-internal rootid $name) = $next; btrfs subvolume delete ../other > /dev/null; echo $name`,
      cwd,
    );
    const taken = await jvs.json(['snapshot', 'two'], { cwd });
    expect(taken).toMatchObject({ engine: 'reflink-copy' });
    await jvs.ok(['verify', 'HEAD'], { cwd });
    expect(await jvs.ok(['diff', 'next', 'two'], { cwd })).toContain(`${replaced.trim()}/f`);
  });

  test('holds all of one long write that was under way at the one before', async () => {
    const cwd = await workspace();
    await sh('head -c 80M /dev/zero > big; cat big > /dev/null', cwd);
    await snapshot(cwd);
    const writing = sh(
      `python3 -c "import os; b = b'b' * (80 << 20); f = os.open('big', os.O_WRONLY); open('../begun', 'w'); os.write(f, b)"`,
      cwd,
    );
    await vi.waitFor(() => stat(join(cwd, '../begun')), { timeout: 60_000, interval: 1 });
    // Its times are those of its beginning, which is so long ago by now that they are trusted.
    await setTimeout(30);
    await jvs.ok(['snapshot', 'meanwhile'], { cwd });
    await writing;
    await snapshot(cwd);
  });
});
