import { existsSync } from 'node:fs';
import { appendFile, cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { digestOf, JvsFixture } from '../../packages/workspaces/test/jvs-fixture.ts';

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

/** A worktree with the snapshots `one` and `two`, and changes on top of `two` that no snapshot holds. */
const prepare = async (parent: string): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: parent });
  const cwd = join(parent, `ws-${counter}`, 'main');
  await mkdir(join(cwd, 'd/e'), { recursive: true });
  for (const name of ['a', 'd/b', 'd/e/c']) await writeFile(join(cwd, name), `one ${name}`);
  await writeFile(join(cwd, 'large'), Buffer.alloc(300_000, 1));
  await jvs.ok(['snapshot', 'one'], { cwd });
  await rm(join(cwd, 'd/e'), { recursive: true });
  for (const name of ['a', 'd/b', 'new']) await writeFile(join(cwd, name), `two ${name}`);
  await writeFile(join(cwd, 'large'), Buffer.alloc(300_000, 2));
  await jvs.ok(['snapshot', 'two'], { cwd });
  await appendFile(join(cwd, 'a'), ' and more');
  return cwd;
};

const killed = async (point: string, args: readonly string[], cwd: string): Promise<void> => {
  const { signal, stderr } = await jvs.jvs(args, { cwd, env: { JVS_KILL_AT: point } });
  expect({ signal, stderr: stderr.replace(/^jvs: unsaved changes.*\n/, '') }).toEqual({
    signal: 'SIGKILL',
    stderr: '',
  });
};

/** What the next command says; after it, everything is in order. */
const nextCommand = async (cwd: string): Promise<string> => {
  const { code, stderr } = await jvs.jvs(['history'], { cwd });
  expect(code).toBe(0);
  const found = await jvs.json<{ healthy: boolean; findings: { severity: string }[] }>(
    ['doctor', '--strict'],
    { cwd },
  );
  expect(found.healthy).toBe(true);
  expect(found.findings.filter(({ severity }) => severity !== 'info')).toEqual([]);
  return stderr;
};

const notes = async (cwd: string): Promise<string[]> =>
  (await jvs.json<{ note: string }[]>(['history', '--all'], { cwd })).map(({ note }) => note);

/** By its id, as a plain command names it. */
const restoreOne = async (cwd: string): Promise<string[]> => {
  const found = await jvs.json<{ note: string; snapshot_id: string }[]>(['history', '--all'], { cwd });
  return ['restore', found.find(({ note }) => note === 'one')?.snapshot_id ?? ''];
};

describe('a snapshot or a restore that is killed', () => {
  test.each(['snapshot-intent', 'scan-stored', 'snapshot-stored'])(
    'at %s: no snapshot, and the next one works',
    async (point) => {
      const cwd = await prepare(jvs.work);
      const before = await digestOf(cwd);
      await killed(point, ['snapshot', 'three'], cwd);
      expect(await nextCommand(cwd)).toMatch(/recovered: a snapshot that was cut off has been dropped/);
      expect(await digestOf(cwd)).toBe(before);
      expect(await notes(cwd)).toEqual(['two', 'one']);
      await jvs.ok(['snapshot', 'three'], { cwd });
      await jvs.ok(['verify', '--all'], { cwd });
    },
  );

  test.each(['snapshot-committed', 'snapshot-indexed'])('at %s: the snapshot is there', async (point) => {
    const cwd = await prepare(jvs.work);
    await killed(point, ['snapshot', 'three'], cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: the snapshot \w+ is complete/);
    expect(await notes(cwd)).toEqual(['three', 'two', 'one']);
    await jvs.ok(['restore', 'one'], { cwd });
    await jvs.ok(['restore', 'three'], { cwd });
    expect(await jvs.ok(['diff', 'three'], { cwd })).toBe('');
  });

  test.each(['restore-saved', 'restore-intent', 'restore-staged'])(
    'at %s: the worktree is as it was',
    async (point) => {
      const cwd = await prepare(jvs.work);
      const before = await digestOf(cwd);
      await killed(point, await restoreOne(cwd), cwd);
      const said = await nextCommand(cwd);
      if (point !== 'restore-saved')
        expect(said).toMatch(/recovered: a restore to \w+ was cut off before it began/);
      expect(await digestOf(cwd)).toBe(before);
      await jvs.ok(['restore', 'one'], { cwd });
      expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('');
    },
  );

  test.each(['restore-first', 'restore-applied', 'restore-done'])(
    'at %s: the next command finishes the restore',
    async (point) => {
      const cwd = await prepare(jvs.work);
      await killed(point, await restoreOne(cwd), cwd);
      expect(await nextCommand(cwd)).toMatch(
        /recovered: a restore to \w+ that was cut off has been finished/,
      );
      expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('');
      expect(await notes(cwd)).toContain('two');
      await jvs.ok(['restore', 'two'], { cwd });
      expect(await jvs.ok(['diff', 'two'], { cwd })).toBe('');
    },
  );

  test('at snapshot-stored, with Node around it: both end, and the next command undoes it', async () => {
    const cwd = await prepare(jvs.work);
    await killed('snapshot-stored', ['snapshot', 'three', '--no-progress'], cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: a snapshot that was cut off has been dropped/);
    expect(await notes(cwd)).toEqual(['two', 'one']);
  });

  test('at restore-committed: the restore is done', async () => {
    const cwd = await prepare(jvs.work);
    await killed('restore-committed', await restoreOne(cwd), cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: /);
    expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('');
  });
});

describe('a command that is killed', () => {
  test.each(['fork-intent', 'fork-filled', 'fork-committed'])(
    'at %s: the worktree is whole or not there',
    async (point) => {
      const cwd = await prepare(jvs.work);
      await killed(point, ['worktree', 'fork', 'one', 'side'], cwd);
      expect(await nextCommand(cwd)).toMatch(/recovered: the worktree side/);
      const side = join(cwd, '../worktrees/side/main');
      expect(existsSync(side)).toBe(point === 'fork-committed');
      if (point !== 'fork-committed') await jvs.ok(['worktree', 'fork', 'one', 'side'], { cwd });
      expect(await jvs.ok(['diff', 'one'], { cwd: side })).toBe('');
    },
  );

  test.each(['remove-intent', 'remove-committed'])('at %s: the worktree is whole or gone', async (point) => {
    const cwd = await prepare(jvs.work);
    await jvs.ok(['worktree', 'fork', 'one', 'side'], { cwd });
    await killed(point, ['worktree', 'remove', 'side'], cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: the removal of the worktree side/);
    const there = point === 'remove-intent';
    expect(existsSync(join(cwd, '../worktrees/side'))).toBe(there);
    if (there) expect(await jvs.ok(['diff', 'one'], { cwd: join(cwd, '../worktrees/side/main') })).toBe('');
  });

  test.each(['rename-moved', 'rename-committed'])('at %s: the worktree has one name', async (point) => {
    const cwd = await prepare(jvs.work);
    await jvs.ok(['worktree', 'fork', 'one', 'side'], { cwd });
    await killed(point, ['worktree', 'rename', 'side', 'other'], cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: /);
    const name = point === 'rename-moved' ? 'side' : 'other';
    expect(await jvs.ok(['diff', 'one'], { cwd: join(cwd, `../worktrees/${name}/main`) })).toBe('');
  });

  test.each(['gc-begin', 'gc-marked', 'gc-blob-removed', 'gc-pack-freed'])(
    'at %s: what remains is whole, and the collection goes on',
    async (point) => {
      const cwd = await prepare(jvs.work);
      await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
      await killed(point, ['gc', 'run'], cwd);
      const said = await nextCommand(cwd);
      const begun = point !== 'gc-begin';
      if (begun) expect(said).toMatch(/recovered: finished a collection that was cut off/);
      expect(await notes(cwd)).toEqual(begun ? ['two'] : ['two', 'one']);
      await jvs.ok(['restore', 'two', '--discard'], { cwd });
      expect(await jvs.ok(['diff', 'two'], { cwd })).toBe('');
    },
  );

  test('at init-before-publish: there is no workspace, and init works', async () => {
    await killed('init-before-publish', ['init', 'half'], jvs.work);
    expect((await jvs.jvs(['history'], { cwd: join(jvs.work, 'half') })).code).toBe(5);
    expect((await jvs.jvs(['init', 'half'])).stderr).toMatch(/an interrupted init was cleared away/);
  });

  test('after which the worktree was changed by hand: the restore is finished and the changes are kept', async () => {
    const cwd = await prepare(jvs.work);
    await killed('restore-first', ['restore', 'one'], cwd);
    await writeFile(join(cwd, 'by-hand'), 'precious');
    const said = await nextCommand(cwd);
    expect(said).toMatch(/unsaved changes are kept as (\w+)/);
    const [, kept = ''] = /unsaved changes are kept as (\w+)/.exec(said) ?? [];
    expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('');
    await jvs.ok(['restore', kept], { cwd });
    expect(existsSync(join(cwd, 'by-hand'))).toBe(true);
  });

  test('at a write: a torn last line of the log did not happen', async () => {
    const cwd = await prepare(jvs.work);
    await appendFile(join(cwd, '../.jvs/log.jsonl'), '{"seq":99,"type":"snap');
    expect(await notes(cwd)).toEqual(['two', 'one']);
    await jvs.ok(['snapshot', 'three'], { cwd });
    expect(await notes(cwd)).toEqual(['three', 'two', 'one']);
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });

  test('leaves no lock behind', async () => {
    const cwd = await prepare(jvs.work);
    await killed('snapshot-stored', ['snapshot', 'three'], cwd);
    await Promise.all([jvs.ok(['snapshot', 'four'], { cwd }), jvs.ok(['snapshot', 'five'], { cwd })]);
    expect((await notes(cwd)).sort()).toEqual(['five', 'four', 'one', 'two']);
  });
});

describe('a command that is killed on btrfs', whereMounts('btrfs'), () => {
  const points = [
    'snapshot-subvolume',
    'scan-stored',
    'snapshot-committed',
    'restore-intent',
    'restore-staged',
    'restore-first',
    'restore-applied',
    'restore-done',
    'fork-filled',
  ];
  test.each(points)('at %s: old or new, and said', async (point) => {
    const cwd = await prepare(btrfs?.path ?? '');
    const args = point.startsWith('restore')
      ? await restoreOne(cwd)
      : point.startsWith('fork')
        ? ['worktree', 'fork', 'one', 'side']
        : ['snapshot', 'three'];
    const before = await digestOf(cwd);
    await killed(point, args, cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: /);
    if (['restore-intent', 'restore-staged'].includes(point)) expect(await digestOf(cwd)).toBe(before);
    else if (point.startsWith('restore')) expect(await jvs.ok(['diff', 'one'], { cwd })).toBe('');
    expect((await readdir(cwd)).filter((name) => name.startsWith('.'))).toEqual([]);
    await jvs.ok(args, { cwd });
    await jvs.ok(['verify', '--all'], { cwd });
  });

  test('at gc-tree-removed: the collection goes on', async () => {
    const cwd = await prepare(btrfs?.path ?? '');
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    await killed('gc-tree-removed', ['gc', 'run'], cwd);
    expect(await nextCommand(cwd)).toMatch(/recovered: finished a collection/);
    expect(await notes(cwd)).toEqual(['two']);
  });
});

describe('a workspace that was copied elsewhere', () => {
  test('works there', async () => {
    const cwd = await prepare(jvs.work);
    const elsewhere = join(jvs.work, 'elsewhere');
    await cp(join(cwd, '..'), elsewhere, { recursive: true, preserveTimestamps: true });
    await jvs.ok(['restore', 'one', '--discard'], { cwd: elsewhere });
    expect(await jvs.ok(['diff', 'one'], { cwd: elsewhere })).toBe('');
    expect(await jvs.json(['doctor', '--strict'], { cwd: elsewhere })).toMatchObject({ healthy: true });
  });
});
