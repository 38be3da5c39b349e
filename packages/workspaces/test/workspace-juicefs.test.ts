import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PlainDirectory } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { TreeProgram } from '../src/trees/tree-program.ts';
import { createWorkspace } from '../src/workspace/create-workspace.ts';
import { probeEngines } from '../src/workspace/engine.ts';
import { Workspace } from '../src/workspace/workspace.ts';

let directory: PlainDirectory;
let home: string;
const path = process.env.PATH;

/** Clones as the real one does: it refuses a destination that exists. */
const working =
  '#!/bin/sh\n[ "$1" = clone ] && [ "$2" = -p ] || exit 2\n[ -e "$4" ] && { echo "$4 already exists" >&2; exit 1; }\nexec cp -a "$3" "$4"\n';
const failing = '#!/bin/sh\necho "the volume is read-only" >&2\nexit 1\n';

const install = async (script: string): Promise<void> => {
  await writeFile(join(home, 'bin/juicefs'), script);
  await chmod(join(home, 'bin/juicefs'), 0o755);
};

beforeAll(async () => {
  directory = await PlainDirectory.make('coppice-juicefs-');
  home = directory.path;
  await mkdir(join(home, 'bin'));
  await mkdir(join(home, 'mount'));
  await writeFile(
    join(home, 'mounts'),
    `/dev/root / ext4 rw 0 0\nJuiceFS:vol ${join(home, 'mount')} fuse.juicefs rw 0 0\n`,
  );
  process.env.PATH = `${join(home, 'bin')}:${path}`;
});
afterEach(() => rm(join(home, 'mount/ws'), { recursive: true, force: true }));
afterAll(async () => {
  process.env.PATH = path;
  await directory[Symbol.asyncDispose]();
});

const make = async (notices: string[]): Promise<{ workspace: Workspace; payload: string }> => {
  const notice = (message: string): void => void notices.push(message);
  const mountsFile = join(home, 'mounts');
  await createWorkspace({ parent: join(home, 'mount'), name: 'ws', notice, mountsFile });
  const payload = join(home, 'mount/ws/main');
  return { workspace: await Workspace.open({ directory: payload, notice, mountsFile, env: {} }), payload };
};

describe('the juicefs-clone engine', () => {
  test('is found by the mount that holds the directory, when the command is there', async () => {
    await install(working);
    await mkdir(join(home, 'mount/a/b'), { recursive: true });
    await mkdir(join(home, 'mounted'));
    const program = new TreeProgram();
    const offered = async (directory: string): Promise<boolean> =>
      (await probeEngines(program, directory, home, join(home, 'mounts'))).engines.includes('juicefs-clone');
    expect(await offered(join(home, 'mount/a/b'))).toBe(true);
    expect(await offered(join(home, 'mounted'))).toBe(false);
    expect(await offered('/')).toBe(false);
    program.close();
  });

  test('clones the worktree into each snapshot, and snapshots into forks', async () => {
    await install(working);
    const notices: string[] = [];
    const { workspace, payload } = await make(notices);
    using _ = workspace;
    await writeFile(join(payload, 'f'), 'one');
    const one = await workspace.snapshot({ note: 'one' });
    expect(one).toMatchObject({ engine: 'juicefs-clone', storage: 'tree', requested_engine: null });
    await writeFile(join(payload, 'f'), 'two');
    await workspace.restore(one);
    expect(await readFile(join(payload, 'f'), 'utf8')).toBe('one');
    await workspace.fork('side', one);
    expect(await readFile(join(home, 'mount/ws/worktrees/side/main/f'), 'utf8')).toBe('one');
    expect((await workspace.verify([one]))[0]).toMatchObject({ ok: true });
    expect(notices.filter((notice) => notice.includes('instead'))).toEqual([]);
  });

  test('says aloud when cloning fails, and records that the snapshot was copied', async () => {
    await install(failing);
    const notices: string[] = [];
    const { workspace, payload } = await make(notices);
    using _ = workspace;
    await writeFile(join(payload, 'f'), 'one');
    const one = await workspace.snapshot({ note: 'one' });
    expect(one).toMatchObject({ engine: 'copy', storage: 'objects', requested_engine: 'juicefs-clone' });
    expect(notices.join('\n')).toMatch(/`juicefs clone` failed: the volume is read-only: using copy instead/);
    expect((await workspace.verify([one]))[0]).toMatchObject({ ok: true });
  });
});
