import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { digestOf, JvsFixture, readText } from './jvs-fixture.ts';

// Many real processes: on a machine with much else to do they take their time.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

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

const shell = async (script: string, cwd: string): Promise<string> => {
  const { code, stdout, stderr } = await jvs.bash(script, { cwd });
  if (code !== 0) throw new Error(`${script}\n${stderr}`);
  return stdout;
};

const canFix = async (cwd: string): Promise<boolean> =>
  (await jvs.bash(': > fixed && chattr +i fixed && chattr -i fixed && rm fixed', { cwd })).code === 0;

/** Something that never stops changing a directory, until it is disposed of. */
class Busy implements AsyncDisposable {
  readonly #child: ChildProcess;

  constructor(script: string, cwd: string) {
    this.#child = spawn('bash', ['--norc', '-c', `while :; do ${script}; done`], { cwd, stdio: 'ignore' });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

describe('what cannot be changed', () => {
  /** The snapshots one and two of three files, of which d/stuck can no longer be changed. */
  const withStuckFile = async (): Promise<string> => {
    const cwd = await fresh();
    await shell('mkdir d; for f in a d/stuck z; do echo one > $f; done', cwd);
    await jvs.ok(['snapshot', 'first', '--tag', 'one'], { cwd });
    await shell('for f in a d/stuck z; do echo two > $f; done', cwd);
    await jvs.ok(['snapshot', 'second', '--tag', 'two'], { cwd });
    await shell('chattr +i d/stuck', cwd);
    return cwd;
  };

  test('is found before a restore touches anything', async ({ skip }) => {
    if (!(await canFix(jvs.work))) skip('files cannot be made immutable here');
    const cwd = await withStuckFile();
    try {
      const before = await digestOf(cwd);
      const refused = await jvs.jvs(['restore', 'one'], { cwd });
      expect(refused.code).toBe(4);
      expect(refused.stderr).toContain('d/stuck: it is immutable');
      expect(refused.stderr).not.toMatch(/token|daemon/);
      expect(await digestOf(cwd)).toBe(before);
      expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    } finally {
      await shell('chattr -i d/stuck', cwd);
    }
    await jvs.ok(['restore', 'one'], { cwd });
    expect(await shell('cat a d/stuck z', cwd)).toBe('one\none\none\n');
  });

  test('stops neither other commands nor another restore when a restore was cut off halfway', async ({
    skip,
  }) => {
    if (!(await canFix(jvs.work))) skip('files cannot be made immutable here');
    const cwd = await withStuckFile();
    try {
      await shell('chattr -i d/stuck', cwd);
      expect((await jvs.jvs(['restore', 'one'], { cwd, env: { JVS_KILL_AT: 'restore-first' } })).signal).toBe(
        'SIGKILL',
      );
      expect(await shell('cat a d/stuck z', cwd)).toBe('one\ntwo\ntwo\n');
      await shell('chattr +i d/stuck', cwd);
      const listed = await jvs.jvs(['history'], { cwd });
      expect(listed.code).toBe(0);
      expect(listed.stderr).toMatch(/not recovered: a restore to \w{8} was cut off and cannot be finished/);
      const refused = await jvs.jvs(['snapshot', 'half of it'], { cwd });
      expect(refused.code).toBe(4);
      expect(refused.stderr).toContain('cannot be finished');
      await jvs.ok(['restore', 'two'], { cwd });
      expect(await shell('cat a d/stuck z', cwd)).toBe('two\ntwo\ntwo\n');
      expect((await jvs.jvs(['history'], { cwd })).stderr).toBe('');
      expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    } finally {
      await shell('chattr -i d/stuck', cwd);
    }
  });
});

describe('a workspace from a stranger', () => {
  test.each([
    'main',
    'worktrees',
    'worktrees/side',
    'worktrees/side/main',
    '.jvs/tmp',
    '.jvs/packs',
    '.jvs/trees',
    '.jvs/intents',
    '.jvs/log.jsonl',
    '.jvs',
  ])('with a link in the place of %s leads no command out of it', async (place) => {
    const root = join(await fresh(), '..');
    await writeFile(join(root, 'main/f'), 'stored');
    await jvs.ok(['snapshot', 'one'], { cwd: root });
    await jvs.ok(['worktree', 'fork', 'side'], { cwd: root });
    await writeFile(join(root, 'main/f'), 'changed');
    const outside = join(jvs.home, `outside-${counter}`);
    const victim = join(outside, 'victim');
    await mkdir(outside);
    await rename(join(root, place), victim);
    await symlink(victim, join(root, place));
    if (!place.endsWith('.jsonl')) await writeFile(join(victim, 'precious'), 'precious');
    const before = [await digestOf(outside), await digestOf(root)];
    // A plain snapshot or restore looks at its own worktree alone.
    const plain = [
      ['snapshot', 'two'],
      ['restore', 'one'],
    ];
    for (const args of [
      ...(place.startsWith('worktrees/') ? [] : plain),
      ['restore', '--discard', 'one'],
      ['status'],
      ['doctor'],
      ['doctor', '--repair'],
      ['gc', 'plan', '--keep-hours', '0'],
      ['gc', 'run'],
      ['worktree', 'remove', 'side', '--force'],
      ['destroy', root, '--force'],
    ]) {
      const { code, stderr } = await jvs.jvs(args, { cwd: root });
      expect({ args, code, stderr }).toMatchObject({
        code: 71,
        stderr: expect.stringMatching(/is a symbolic link to .*\nhint: .*Remove the link/),
      });
    }
    expect([await digestOf(outside), await digestOf(root)]).toEqual(before);
  });

  test('whose log names a worktree, a snapshot or a plan outside of it leads no command there', async () => {
    const root = join(await fresh(), '..');
    const log = join(root, '.jvs/log.jsonl');
    await writeFile(join(root, 'main/f'), 'stored');
    await jvs.ok(['snapshot', 'one'], { cwd: root });
    await jvs.ok(['worktree', 'fork', 'side'], { cwd: root });
    const sound = await readFile(log, 'utf8');
    const [id = ''] = /(?<="snapshot_id":")\w+/.exec(sound) ?? [];
    const outside = join(root, '../outside');
    await mkdir(join(outside, 'main'), { recursive: true });
    await writeFile(join(outside, 'main/precious'), 'precious');
    await writeFile(join(root, '../outside.json'), '{}');
    const mark = { plan_id: '../../../outside', snapshots: [], pid: 1 };
    const last = JSON.parse(sound.trimEnd().split('\n').at(-1) ?? '') as Record<string, unknown>;
    for (const forged of [
      sound.replaceAll('"side"', '"../../outside"'),
      sound.replaceAll(id, '../../../outside'),
      `${sound}${JSON.stringify({ ...last, type: 'gc_mark', data: mark })}\n`,
    ]) {
      expect(forged).not.toBe(sound);
      await writeFile(log, forged);
      for (const args of [
        ['status'],
        ['worktree', 'remove', '../../outside', '--force'],
        ['restore', 'one'],
        ['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'],
        ['gc', 'run'],
      ]) {
        const { code, stderr } = await jvs.jvs(args, { cwd: root });
        expect({ args, code, stderr }).toMatchObject({
          code: 71,
          stderr: expect.stringMatching(/line \d+ of the workspace's log cannot be read/),
        });
      }
    }
    await jvs.jvs(['doctor', '--repair'], { cwd: root });
    expect(await readText(join(outside, 'main/precious'))).toBe('precious');
    expect(existsSync(join(root, '../outside.json'))).toBe(true);
    expect(await jvs.json(['doctor', '--strict'], { cwd: root })).toMatchObject({ healthy: true });
    await jvs.ok(['restore', 'one'], { cwd: root });
  });
});

describe('a mount inside a worktree', whereMounts('btrfs'), () => {
  test.each(['copy', 'btrfs'])(
    'is left alone: a restore refuses before it changes anything, with the engine %s',
    async (kind) => {
      const cwd = await fresh(kind === 'btrfs' ? btrfs?.path : undefined);
      await shell('mkdir -p d/data; echo one > a; echo one > z', cwd);
      await jvs.ok(['snapshot', 'empty', '--tag', 'empty'], { cwd });
      await shell('rm -r d; echo two > a; echo two > z', cwd);
      await jvs.ok(['snapshot', 'without', '--tag', 'without'], { cwd });
      await shell('mkdir -p d/data; mount -t tmpfs tmpfs d/data; echo precious > d/data/file', cwd);
      try {
        for (const target of ['empty', 'without']) {
          for (const option of [[], ['--discard']]) {
            const before = await digestOf(cwd);
            const refused = await jvs.jvs(['restore', target, ...option], { cwd });
            expect({ target, code: refused.code }).toEqual({ target, code: 7 });
            expect(refused.stderr).toMatch(/cannot change d\/data.*: something is mounted there/);
            expect(await digestOf(cwd)).toBe(before);
          }
        }
        await shell('echo d/data > .jvsignore', cwd);
        await jvs.ok(['restore', 'without', '--discard'], { cwd });
        expect(await shell('cat a z d/data/file', cwd)).toBe('two\ntwo\nprecious\n');
        const destroyed = await jvs.jvs(['destroy', join(cwd, '..'), '--force'], { cwd: jvs.work });
        expect(destroyed.code).toBe(7);
        expect(await shell('cat a d/data/file', cwd)).toBe('two\nprecious\n');
        await jvs.ok(['worktree', 'create', 'side'], { cwd });
        const side = join(cwd, '../worktrees/side/main');
        await shell('mkdir m; mount -t tmpfs tmpfs m; echo precious > m/file', side);
        expect((await jvs.jvs(['worktree', 'remove', 'side', '--force'], { cwd })).code).toBe(7);
        expect(await shell('cat m/file; umount m', side)).toBe('precious\n');
      } finally {
        await shell('umount d/data', cwd);
      }
    },
  );
});

describe('names', () => {
  test('of any bytes are told apart in diff, one to a line, and Python gets their bytes back', async () => {
    const cwd = await fresh();
    await shell(
      String.raw`: > $'new\nline'; : > $'esc\e[31m'; : > $'bad\xff'; : > 'bad\xff'; : > "quote\"'s"`,
      cwd,
    );
    await jvs.ok(['snapshot', 'empty'], { cwd });
    await shell('for f in *; do echo x > "$f"; done', cwd);
    const lines = (await jvs.ok(['diff'], { cwd })).trimEnd().split('\n').sort();
    expect(lines).toEqual(
      [
        String.raw`M bad\\xff`,
        String.raw`M bad\xff`,
        String.raw`M esc\x1b[31m`,
        String.raw`M new\nline`,
        `M quote"'s`,
      ].sort(),
    );
    const names = await shell(
      `jvs diff --json | python3 -c "import json,os,sys; print(sorted(os.fsencode(e['path']) for e in json.load(sys.stdin)['modified']) == sorted(os.listdir(b'.')))"`,
      cwd,
    );
    expect(names).toBe('True\n');
  });

  test.each(['plain', 'btrfs'])(
    'deeper than the kernel takes in one path, and hard links there, on %s',
    async (kind) => {
      if (kind === 'btrfs' && !btrfs) return;
      const cwd = await fresh(kind === 'btrfs' ? btrfs?.path : undefined);
      // 60 folders of 100 bytes: 6000, where a path may have 4096.
      const down = `n=$(printf 'x%.0s' {1..100}); for i in {1..60}; do mkdir -p $n; cd -P $n; done`;
      await shell(`${down}; echo deep > first; ln first second; echo solid > third`, cwd);
      await jvs.ok(['snapshot', 'deep', '--tag', 'deep'], { cwd });
      await shell(`${down}; rm first; echo other > third`, cwd);
      await jvs.ok(['restore', 'deep'], { cwd });
      expect(await shell(`${down}; cat first second third; stat -c %h first`, cwd)).toBe(
        'deep\ndeep\nsolid\n2\n',
      );
      await jvs.ok(['worktree', 'fork', 'deep', 'side'], { cwd });
      const side = (await jvs.ok(['worktree', 'path', 'side'], { cwd })).trim();
      expect(await shell(`${down}; cat second third`, side)).toBe('deep\nsolid\n');
      await jvs.ok(['worktree', 'remove', 'side'], { cwd });
      expect(existsSync(side)).toBe(false);
      await jvs.ok(['verify', '--all'], { cwd });
      // Node's own rm does not get that deep.
      await shell('rm -rf x*', cwd);
    },
  );

  test('of paths may lead through symbolic links to the worktree, and not out of it', async () => {
    const cwd = await fresh();
    await shell('mkdir d; echo f > f; echo g > d/g; ln -s /etc out', cwd);
    const link = join(jvs.work, 'link');
    await symlink(cwd, link);
    const held = async (args: readonly string[]) =>
      (await jvs.json<{ partial_paths: string[] }>(['snapshot', ...args], { cwd: jvs.work })).partial_paths;
    expect(await held(['-C', link, '--paths', 'f', 'd/g'])).toEqual(['d/g', 'f']);
    expect(await held(['-C', cwd, '--paths', join(link, 'd')])).toEqual(['d']);
    expect(await held(['-C', cwd, '--paths', 'out'])).toEqual(['out']);
    expect((await jvs.jvs(['snapshot', '--paths', 'out/passwd'], { cwd })).code).toBe(2);
    expect((await jvs.jvs(['restore', 'HEAD', '--paths', 'out/passwd'], { cwd })).code).toBe(2);
  });
});

describe('a worktree that changes all the time', () => {
  test('can be snapshotted while files, directories and links come and go', async () => {
    const cwd = await fresh();
    await shell('for i in {1..200}; do echo $i > f$i; done', cwd);
    {
      await using _busy = new Busy(
        'for i in {1..40}; do : > t$i; mkdir -p e$i; ln -sf a l$i; done; rm -rf t* e* l*',
        cwd,
      );
      for (let round = 0; round < 20; round += 1) {
        const { code, stderr } = await jvs.jvs(['snapshot', `round ${round}`], { cwd });
        expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      }
    }
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('a file written during a snapshot is stored as it was read, and read again by the next', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'small'), '0'.repeat(4096));
    await writeFile(join(cwd, 'large'), '0'.repeat(1 << 20));
    {
      // The same size each time: only the time of the change tells.
      await using _busy = new Busy(
        'for f in small large; do printf %s $RANDOM | dd of=$f bs=1 conv=notrunc status=none; done',
        cwd,
      );
      for (let round = 0; round < 10; round += 1) await jvs.ok(['snapshot', `round ${round}`], { cwd });
    }
    await jvs.ok(['verify', '--all'], { cwd });
    await shell("printf 'the end' | tee small large > /dev/null", cwd);
    const before = await digestOf(cwd);
    await jvs.ok(['snapshot', 'settled', '--tag', 'settled'], { cwd });
    await appendFile(join(cwd, 'small'), 'more');
    await jvs.ok(['restore', 'settled'], { cwd });
    expect(await digestOf(cwd)).toBe(before);
  });

  test('what a program writes through memory that it has mapped is stored, again and again', async () => {
    const program = `
import mmap, subprocess, time
with open('mapped', 'w+b') as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    for letter in b'abc':
        memory[0] = letter
        time.sleep(0.1)
        subprocess.run(['jvs', 'snapshot', chr(letter), '--tag', chr(letter)], check=True)`;
    const cwd = await fresh();
    await writeFile(join(cwd, 'program.py'), program);
    const { code, stderr } = await jvs.bash('python3 program.py', { cwd });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const letter of ['a', 'b', 'c']) {
      await jvs.ok(['restore', letter], { cwd });
      expect((await readFile(join(cwd, 'mapped'), 'utf8'))[0]).toBe(letter);
    }
  });

  test('commands of every kind at once leave one history without a fault', async () => {
    const cwd = await fresh();
    await writeFile(join(cwd, 'f'), 'base');
    await jvs.ok(['snapshot', 'base', '--tag', 'base'], { cwd });
    const commands = [0, 1, 2, 3].flatMap((n) => [
      ['snapshot', `s${n}`],
      ['restore', 'base'],
      ['worktree', 'fork', 'base', `w${n}`],
      ['gc', 'plan', '--keep-hours', '0'],
      ['verify', '--all'],
      ['diff', 'base'],
    ]);
    const ended = await Promise.all(commands.map((args) => jvs.jvs(args, { cwd })));
    expect(ended.filter(({ code }) => code !== 0)).toEqual([]);
    // Two that want the same name: one gets it.
    const contest = await Promise.all([
      jvs.jvs(['worktree', 'rename', 'w0', 'prize'], { cwd }),
      jvs.jvs(['worktree', 'rename', 'w1', 'prize'], { cwd }),
      jvs.jvs(['worktree', 'fork', 'base', 'prize'], { cwd }),
    ]);
    expect(contest.map(({ code }) => code).sort()).toEqual([0, 6, 6]);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });
});

describe('repositories inside', () => {
  test('a git repository and another workspace are kept like everything else', async () => {
    const cwd = await fresh();
    await shell(
      'git init -q project && cd project && echo 1 > f && git add f && git -c user.name=n -c user.email=e commit -qm one',
      cwd,
    );
    const made = await jvs.jvs(['init', 'inner'], { cwd });
    expect(made.stderr).toContain('will be part of its snapshots');
    await writeFile(join(cwd, 'inner/main/x'), 'x');
    await jvs.ok(['snapshot', 'inner one'], { cwd: join(cwd, 'inner/main') });
    await jvs.ok(['snapshot', 'both', '--tag', 'both'], { cwd });
    await shell('rm -rf project inner', cwd);
    await jvs.ok(['restore', 'both'], { cwd });
    expect(await shell('git -C project status --porcelain; git -C project log --format=%s', cwd)).toBe(
      'one\n',
    );
    await jvs.ok(['verify', '--all'], { cwd: join(cwd, 'inner/main') });
  });
});

describe('filesystems with less to offer', whereMounts('btrfs'), () => {
  test('one without extended attributes, and an overlay, give everything else back', async () => {
    await using ramfs = await MountedFilesystem.withoutDevice('ramfs', 'mode=755', jvs.home);
    const layers = join(ramfs.path, 'layers');
    for (const layer of ['lower', 'upper', 'work']) await mkdir(join(layers, layer), { recursive: true });
    await using tmpfs = await MountedFilesystem.withoutDevice('tmpfs', 'size=64m', jvs.home);
    for (const layer of ['upper', 'work']) await mkdir(join(tmpfs.path, layer));
    await using overlay = await MountedFilesystem.withoutDevice(
      'overlay',
      `lowerdir=${join(layers, 'lower')},upperdir=${join(tmpfs.path, 'upper')},workdir=${join(tmpfs.path, 'work')}`,
      jvs.home,
    );
    for (const place of [ramfs.path, tmpfs.path, overlay.path]) {
      const cwd = await fresh(place);
      await shell(
        'mkdir -p d/e; echo a > a; ln a d/b; ln -s a l; mkfifo p; chmod 4711 a; touch -d @1 d; truncate -s 1M hole',
        cwd,
      );
      const before = await digestOf(cwd);
      await jvs.ok(['snapshot', 'all', '--tag', 'all'], { cwd });
      await shell('rm -rf d l; echo b >> a; mkdir p2; rm p hole', cwd);
      await jvs.ok(['restore', 'all'], { cwd });
      expect(await digestOf(cwd)).toBe(before);
      expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
    }
  });

  test('the quick start runs on a tmpfs and on an overlay, where the engine is copy, and nothing holds them afterwards', async () => {
    const layers = join(jvs.home, 'layers');
    for (const layer of ['lower', 'upper', 'work']) await mkdir(join(layers, layer), { recursive: true });
    const below = ['lower', 'upper', 'work'].map((layer) => `${layer}dir=${join(layers, layer)}`).join(',');
    for (const [type, options] of [
      ['tmpfs', 'size=64m'],
      ['overlay', below],
    ] as const) {
      await using place = await MountedFilesystem.withoutDevice(type, options, jvs.home);
      const said = await shell(
        `
jvs init agent-base
cd agent-base/main
mkdir results; echo base > agent.py
jvs snapshot "Agent baseline v1" --tag baseline --tag v1
for RUN in {1..5}; do
    jvs restore baseline
    echo $RUN > results/$RUN.json
    jvs snapshot "Run $RUN: ok" --tag "run-$RUN" --tag agent
done
jvs worktree fork experiment-a
(cd ../worktrees/experiment-a/main; jvs restore baseline; echo A > agent.py; jvs snapshot "Variant A" --tag a)
jvs restore --latest-tag run-3
echo found; ls results; jvs history --tag agent | wc -l; jvs doctor --strict --json | grep '"engine"'
jvs verify --all > /dev/null; jvs gc plan > /dev/null; jvs info > /dev/null
cd /; umount ${place.path}; mount -t ${type} -o ${options} ${type} ${place.path}`,
        place.path,
      );
      expect(said.split('found\n')[1]?.trim().split(/\s+/)).toEqual(['3.json', '5', '"engine":', '"copy",']);
    }
  });

  test('a disk that is nearly full has room for a snapshot of a large file that was only touched or renamed', async () => {
    await using tmpfs = await MountedFilesystem.withoutDevice('tmpfs', 'size=16m', jvs.home);
    const cwd = await fresh(tmpfs.path);
    await shell('head -c 6M /dev/urandom > large', cwd);
    await jvs.ok(['snapshot', 'one'], { cwd });
    await shell('head -c 3M /dev/zero > ../ballast; touch large', cwd);
    await jvs.ok(['snapshot', 'touched'], { cwd });
    await shell('mv large other', cwd);
    await jvs.ok(['snapshot', 'renamed'], { cwd });
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('a disk that is full stops a snapshot and a restore, and nothing is half done', async () => {
    await using tmpfs = await MountedFilesystem.withoutDevice('tmpfs', 'size=16m', jvs.home);
    const cwd = await fresh(tmpfs.path);
    await shell('mkdir d; for i in {1..100}; do echo $i > d/$i; done; head -c 3M /dev/urandom > large', cwd);
    await jvs.ok(['snapshot', 'good', '--tag', 'good'], { cwd });
    await shell('head -c 3M /dev/urandom > large; for i in {1..50}; do echo x > d/$i; done', cwd);
    // 3 MiB stored, 3 here: what is left is not enough for another three.
    await shell('head -c 9M /dev/zero > ../ballast', cwd);
    const before = await digestOf(cwd);
    const commands = [
      ['snapshot', 'too much'],
      ['restore', 'good', '--discard'],
      ['worktree', 'fork', 'good', 'side'],
    ];
    // Many times: one thread finds the disk full while others still write what has to be removed.
    for (const args of Array.from({ length: 10 }, () => commands).flat()) {
      const { code, stderr } = await jvs.jvs(args, { cwd });
      expect({ args, code }).toEqual({ args, code: 74 });
      expect(stderr).toContain('hint: Free some space');
      expect(await digestOf(cwd)).toBe(before);
    }
    await shell('cat /dev/zero > ../more || true', cwd);
    expect((await jvs.jvs(['snapshot', 'no room at all'], { cwd })).code).toBe(74);
    expect((await jvs.jvs(['history'], { cwd })).code).toBe(0);
    await shell('rm ../ballast ../more', cwd);
    expect((await jvs.json<unknown[]>(['history'], { cwd })).length).toBe(1);
    expect(await digestOf(cwd)).toBe(before);
    await jvs.ok(['snapshot', 'now'], { cwd });
    await jvs.ok(['restore', 'good'], { cwd });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
    expect(await readdir(join(cwd, '../.jvs/intents'))).toEqual([]);
    expect(await readText(join(cwd, 'd/7'))).toBe('7\n');
  });
});
