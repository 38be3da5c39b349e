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
});
