import { existsSync } from 'node:fs';
import { open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canMount, MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf, JvsFixture, readText } from './jvs-fixture.ts';

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

/** A small file, a large one and a directory, in the snapshots `one` and `two`. */
const prepare = async (parent = jvs.work): Promise<{ cwd: string; control: string }> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: parent });
  const cwd = join(parent, `ws-${counter}`, 'main');
  await writeFile(join(cwd, 'small'), 'small content');
  await writeFile(join(cwd, 'large'), Buffer.alloc(500_000, 7));
  await jvs.ok(['snapshot', 'one'], { cwd });
  await writeFile(join(cwd, 'small'), 'other content');
  await rm(join(cwd, 'large'));
  await jvs.ok(['snapshot', 'two'], { cwd });
  return { cwd, control: join(cwd, '../.jvs') };
};

const flip = async (path: string, at: number): Promise<void> => {
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  byte[0] = (byte[0] ?? 0) ^ 1;
  await file.write(byte, 0, 1, at);
  await file.close();
};

/** The pack that holds these bytes, and where. */
const findInPacks = async (control: string, text: string): Promise<{ path: string; at: number }> => {
  for (const name of await readdir(join(control, 'packs'))) {
    const path = join(control, 'packs', name);
    const at = (await readFile(path)).indexOf(text);
    if (at >= 0) return { path, at };
  }
  throw new Error(`${text} is in no pack`);
};

const onlyBlob = async (control: string): Promise<string> => {
  const [folder = ''] = await readdir(join(control, 'blobs'));
  const [blob = ''] = await readdir(join(control, 'blobs', folder));
  return join(control, 'blobs', folder, blob);
};

/** Verify names the snapshot and the file, doctor is unhealthy, and a restore of it changes nothing. */
const expectDamage = async (cwd: string, path: RegExp): Promise<void> => {
  const verified = await jvs.jvs(['verify', 'one', '--json'], { cwd });
  expect(verified.code).toBe(71);
  expect(verified.stdout).toMatch(path);
  expect((await jvs.jvs(['verify', '--all'], { cwd })).code).toBe(71);
  expect((await jvs.jvs(['verify', 'two'], { cwd })).code).toBe(0);
  const doctor = await jvs.jvs(['doctor', '--strict', '--json'], { cwd });
  expect(doctor.code).toBe(71);
  expect(JSON.parse(doctor.stdout)).toMatchObject({ healthy: false });
  const before = await digestOf(cwd);
  expect((await jvs.jvs(['restore', 'one'], { cwd })).code).toBe(71);
  expect(await digestOf(cwd)).toBe(before);
  expect((await jvs.jvs(['history'], { cwd })).stderr).toBe('');
};

describe('verify finds', () => {
  test('one flipped bit in a small file', async () => {
    const { cwd, control } = await prepare();
    const { path, at } = await findInPacks(control, 'small content');
    await flip(path, at + 3);
    await expectDamage(cwd, /"small"/);
  });

  test('one flipped bit in a large file', async () => {
    const { cwd, control } = await prepare();
    await flip(await onlyBlob(control), 499_999);
    await expectDamage(cwd, /"large"/);
  });

  test('one flipped bit in a stored directory', async () => {
    const { cwd, control } = await prepare();
    const { path } = await findInPacks(control, 'small content');
    const nameAt = (await readFile(path)).lastIndexOf('large');
    await flip(path, nameAt);
    await expectDamage(cwd, /the stored directory is missing or does not match its hash/);
  });

  test('a file that was removed from the store', async () => {
    const { cwd, control } = await prepare();
    await rm(await onlyBlob(control));
    await expectDamage(cwd, /"large"/);
  });

  test('a pack that is gone', async () => {
    const { cwd, control } = await prepare();
    const { path } = await findInPacks(control, 'small content');
    await rename(path, `${path}.away`);
    const verified = await jvs.jvs(['verify', 'one'], { cwd });
    expect(verified).toMatchObject({ code: 71 });
  });

  test('an edited record, and doctor --strict names its line', async () => {
    const { cwd, control } = await prepare();
    const log = join(control, 'log.jsonl');
    await writeFile(log, (await readText(log)).replace('"note":"one"', '"note":"ten"'));
    expect((await jvs.jvs(['verify', 'ten'], { cwd })).stdout).toMatch(
      /line 3 of the log was changed after it was written/,
    );
    const doctor = await jvs.jvs(['doctor', '--strict'], { cwd });
    expect(doctor.code).toBe(71);
    expect(doctor.stdout).toMatch(/line 3 of the log does not match its hash/);
  });

  test('a record that was taken out of the log', async () => {
    const { cwd, control } = await prepare();
    const log = join(control, 'log.jsonl');
    const lines = (await readText(log)).split('\n');
    await writeFile(log, lines.toSpliced(2, 1).join('\n'));
    expect((await jvs.jvs(['doctor', '--strict'], { cwd })).stdout).toMatch(
      /line 3 of the log does not follow the line before it/,
    );
  });

  test('a log that cannot be read at all is reported, not passed over', async () => {
    const { cwd, control } = await prepare();
    const log = join(control, 'log.jsonl');
    await writeFile(log, (await readText(log)).replace('{"seq":2', '{"seq":'));
    expect((await jvs.jvs(['history'], { cwd })).code).toBe(71);
    const doctor = await jvs.jvs(['doctor', '--json'], { cwd });
    expect(doctor.code).toBe(71);
    expect(JSON.parse(doctor.stdout)).toMatchObject({
      healthy: false,
      findings: [{ category: 'log' }, { category: 'log' }],
    });
  });

  test('a change inside a btrfs snapshot', whereMounts('btrfs'), async () => {
    const { cwd, control } = await prepare(btrfs?.path);
    const trees = await readdir(join(control, 'trees'));
    const history = await jvs.json<{ note: string; snapshot_id: string }[]>(['history'], { cwd });
    const one = history.find(({ note }) => note === 'one')?.snapshot_id ?? '';
    expect(trees).toContain(one);
    const tree = join(control, 'trees', one);
    const made = await jvs.bash(
      `btrfs property set ${tree} ro false; printf x >> ${tree}/small; btrfs property set ${tree} ro true`,
    );
    expect(made.code).toBe(0);
    await expectDamage(cwd, /"small"/);
  });
});

describe('doctor', () => {
  test('repairs a worktree whose directory is gone, and frees what nothing needs', async () => {
    const { cwd, control } = await prepare();
    await rm(cwd, { recursive: true });
    await writeFile(join(control, 'tmp/leftover'), 'x');
    const root = join(cwd, '..');
    const sick = await jvs.jvs(['doctor', '--json'], { cwd: root });
    expect(sick.code).toBe(71);
    expect(sick.stdout).toMatch(/the directory of the worktree main is gone/);
    expect((await jvs.jvs(['snapshot', 'x'], { cwd: root })).code).toBe(71);
    expect(await jvs.json(['doctor', '--repair'], { cwd: root })).toMatchObject({
      healthy: true,
      findings: [],
    });
    expect(await readText(join(cwd, 'small'))).toBe('other content');
    expect(existsSync(join(control, 'tmp/leftover'))).toBe(false);
  });

  test('never touches the files of the workspace, whatever they are called', async () => {
    const { cwd } = await prepare();
    for (const name of ['.jvs-tmp-mine', '.READY', 'x.tmp']) await writeFile(join(cwd, name), name);
    await jvs.ok(['doctor', '--repair'], { cwd });
    for (const name of ['.jvs-tmp-mine', '.READY', 'x.tmp'])
      expect(await readText(join(cwd, name))).toBe(name);
  });
});

test('a flipped byte in the header of an index is noticed: no snapshot is wrong', async () => {
  const { cwd, control } = await prepare();
  const [name = ''] = await readdir(join(control, 'indexes'));
  // Magic, version, length, check, hash of the root and its place; the basis is looked up in the log.
  for (const at of [0, 4, 8, 16, 47, 48, 79, 80, 88]) {
    await flip(join(control, 'indexes', name), at);
    await jvs.ok(['snapshot', `flipped ${at}`], { cwd });
    await flip(join(control, 'indexes', name), at);
    await writeFile(join(cwd, 'new'), `${at}`);
    await jvs.ok(['snapshot', `with a change ${at}`], { cwd });
    await jvs.ok(['verify', '--all'], { cwd });
  }
});
