import { spawnSync } from 'node:child_process';
import { chmod, chown, copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { JvsFixture } from './jvs-fixture.ts';

const nobody = { uid: 65_534, gid: 65_534 };
/** Somebody who is not root must be able to start Node at all, which depends on where it lies. */
const possible = canMount('btrfs') && spawnSync(process.execPath, ['-e', '0'], nobody).status === 0;
const reason = possible
  ? undefined
  : 'only root can act as somebody else, and the checkout must be theirs to read';

let jvs: JvsFixture;
let btrfs: MountedFilesystem | undefined;
beforeAll(async () => {
  if (!possible) return;
  jvs = await JvsFixture.create();
  btrfs = await MountedFilesystem.create('btrfs', jvs.home);
  await chmod(jvs.home, 0o755);
  await copyFile(jvs.env.COPPICE_TREE_PROGRAM ?? '', join(jvs.home, 'coppice-tree'));
});
afterAll(async () => {
  await btrfs?.[Symbol.asyncDispose]();
  await jvs?.[Symbol.asyncDispose]();
});

const script = `
jvs init ws
cd ws/main
mkdir -p d/readonly/below; echo 1 | tee d/readonly/f > d/readonly/below/f; chmod 400 d/readonly/f; chmod 500 d/readonly; echo a > a
jvs snapshot one --tag one
chmod 700 d/readonly; rm -f d/readonly/f; echo b > a
jvs restore one
test "$(cat a d/readonly/f)" = $'a\\n1'; test "$(stat -c %a d/readonly)" = 500
for part in '' '--paths d/readonly/below/f'; do
  echo 2 > d/readonly/below/f
  jvs restore one $part
  test "$(cat d/readonly/below/f)" = 1; test "$(stat -c %a d/readonly)" = 500
done
jvs worktree fork one side
test "$(cat ../worktrees/side/main/a)" = a
jvs worktree remove side
echo c > a
jvs restore one
jvs gc plan --keep-hours 0 --collect-ancestors
jvs gc run
jvs verify --all
jvs doctor --strict --json | grep -q '"healthy": true'`;

describe('somebody who is not root', skipFor(reason), () => {
  test.each(['plain', 'btrfs'])('can do everything with what is theirs on %s', async (kind) => {
    const place = join(kind === 'btrfs' ? (btrfs?.path ?? '') : jvs.home, 'theirs');
    await mkdir(place);
    await chown(place, nobody.uid, nobody.gid);
    const env = { COPPICE_TREE_PROGRAM: join(jvs.home, 'coppice-tree') };
    const { code, stderr, stdout } = await jvs.bash(script, { cwd: place, env, ...nobody });
    expect({ code, stderr, stdout }).toMatchObject({ code: 0 });
  });

  /** Runs as them, in a directory of theirs. */
  const theirs = async (kind: string, name: string) => {
    const place = join(kind === 'btrfs' ? (btrfs?.path ?? '') : jvs.home, name);
    await mkdir(place);
    await chown(place, nobody.uid, nobody.gid);
    const env = { COPPICE_TREE_PROGRAM: join(jvs.home, 'coppice-tree') };
    return { place, run: (text: string) => jvs.bash(text, { cwd: place, env, ...nobody }) };
  };

  test.each(['plain', 'btrfs'])('goes on after root was at work in their workspace, on %s', async (kind) => {
    const { place, run } = await theirs(kind, 'after-root');
    expect((await run('jvs init ws; cd ws/main; echo a > a; jvs snapshot one --tag one')).code).toBe(0);
    const byRoot = await jvs.bash(
      `cd ws/main
echo b > a; chown --reference=. a
jvs snapshot two --tag two
jvs snapshot 'by way of Node' --json > /dev/null
echo c > a; head -c 300000 /dev/urandom > large; chown --reference=. a large
jvs restore one
jvs worktree fork one side
jvs worktree rename side other
jvs pin one; jvs config set gc_keep_hours 0
jvs gc plan; jvs gc run
rm -r ../.jvs/kept; rm -r ../worktrees/other
jvs doctor --repair
jvs verify --all`,
      { cwd: place },
    );
    expect(byRoot).toMatchObject({ code: 0 });
    const strange = await jvs.bash(`find ws ! \\( -uid ${nobody.uid} -gid ${nobody.gid} \\) -print`, {
      cwd: place,
    });
    expect(strange.stdout).toBe('');
    const after = await run(
      `cd ws/main; jvs restore one; echo d > d; jvs snapshot three; jvs worktree fork one another; jvs worktree remove other
jvs gc plan; jvs gc run; jvs doctor --strict --json | grep -q '"healthy": true'`,
    );
    expect({ code: after.code, stderr: after.stderr }).toMatchObject({ code: 0 });
  });

  test.each(['plain', 'btrfs'])('gets past what their own modes shut, on %s', async (kind) => {
    const { place, run } = await theirs(kind, 'shut');
    const done = await run(
      `jvs init ws; cd ws/main; mkdir -p d/e; echo 1 > d/e/f; echo 1 > g; jvs snapshot one --tag one
echo 2 > d/e/f; chmod 000 d/e/f g d/e d
jvs diff > /dev/null; test $(stat -c %a d) = 0
jvs snapshot shut --tag shut
test $(stat -c %a d) = 0; test $(stat -c %a g) = 0
jvs restore one
cat d/e/f g
chmod 000 d
jvs restore one --discard
cat d/e/f
jvs restore shut
test $(stat -c %a d) = 0
jvs verify --all`,
    );
    expect({ code: done.code, stderr: done.stderr }).toMatchObject({ code: 0 });
    expect(done.stdout).toMatch(/\n1\n1\n[\s\S]*\n1\n/);
    expect((await run(`cd ${place}; jvs destroy ws --force; test ! -e ws`)).code).toBe(0);
  });

  test('is told what may not be read, and not that it is damaged', async () => {
    const { run } = await theirs('plain', 'refused');
    expect((await run('jvs init ws; cd ws/main; echo a > a; jvs snapshot one')).code).toBe(0);
    expect((await run('head -c 300000 /dev/zero > ws/main/large; cd ws/main; jvs snapshot two')).code).toBe(
      0,
    );
    for (const what of ['packs/*', 'blobs/*/*', 'log.jsonl', 'repository.json']) {
      expect((await run(`chmod 000 ws/.jvs/${what}`)).code).toBe(0);
      const verified = await run('cd ws/main; jvs verify --all');
      expect({ what, code: verified.code }).toEqual({ what, code: 4 });
      expect(verified.stderr).toMatch(/[Pp]ermission denied/);
      const examined = await run('cd ws/main; jvs doctor --strict');
      expect(examined.stdout + examined.stderr, what).toMatch(/[Pp]ermission denied/);
      expect((await run(`chmod 600 ws/.jvs/${what}`)).code).toBe(0);
    }
    expect((await run('cd ws/main; jvs verify --all')).code).toBe(0);
  });

  test('removes a workspace on btrfs, and nothing while a command is at work in it', async () => {
    const { place, run } = await theirs('btrfs', 'destroyed');
    await run(
      'jvs init ws; cd ws/main; echo a > a; jvs snapshot one; jvs worktree fork side; touch ../beside',
    );
    expect((await run('jvs destroy ws')).code).toBe(2);
    const busy = await run('exec 9< ws/.jvs/locks/store; flock -s 9; jvs destroy ws --force 9<&-');
    expect(busy.code).toBe(7);
    expect((await run('jvs destroy ws/main --force')).code).toBe(2);
    expect((await run('ls ws/main/a ws/worktrees/side/main/a')).code).toBe(0);
    expect(await run('jvs destroy ws --force')).toMatchObject({ code: 0, stderr: '' });
    expect((await jvs.bash('ls -A ws', { cwd: place })).stdout).toBe('beside\n');
  });
});
