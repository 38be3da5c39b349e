import { existsSync } from 'node:fs';
import {
  appendFile,
  cp,
  mkdir,
  open,
  readdir,
  readFile,
  rm,
  rmdir,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join, relative } from 'node:path';
import { MountedFilesystem, whereMounts } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { JvsFixture, readText } from './jvs-fixture.ts';

// Many real processes: on a machine with much else to do they take their time.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

let jvs: JvsFixture;
let counter = 0;
beforeAll(async () => {
  jvs = await JvsFixture.create();
});
afterAll(() => jvs[Symbol.asyncDispose]());

interface Examined {
  readonly healthy: boolean;
  readonly findings: readonly { severity: string; category: string; description: string; fix: string }[];
  readonly repaired: readonly string[];
  readonly engine: string;
}

/** The snapshots one, two and three, of which each holds small and large files of its own. */
const prepare = async (): Promise<{ cwd: string; control: string; log: string }> => {
  counter += 1;
  const cwd = await jvs.workspace(`ws-${counter}`);
  for (const note of ['one', 'two', 'three']) {
    await mkdir(join(cwd, `d-${note}`));
    await writeFile(join(cwd, `d-${note}/small`), `small ${note}`);
    await writeFile(join(cwd, 'large'), Buffer.alloc(400_000, note));
    await writeFile(join(cwd, 'f'), note);
    await jvs.ok(['snapshot', note, '--tag', `t-${note}`], { cwd });
  }
  const control = join(cwd, '../.jvs');
  return { cwd, control, log: join(control, 'log.jsonl') };
};

const notes = async (cwd: string): Promise<string[]> =>
  (await jvs.json<{ note: string }[]>(['history', '--all'], { cwd })).map(({ note }) => note);

const examine = async (cwd: string, ...args: string[]): Promise<Examined> => {
  const { stdout, stderr, code } = await jvs.jvs(['doctor', '--json', ...args], { cwd });
  expect([0, 71], stderr).toContain(code);
  const examined = JSON.parse(stdout) as Examined;
  expect(code).toBe(examined.healthy ? 0 : 71);
  return examined;
};

/** Lines of the log, each with its newline. */
const lines = async (log: string): Promise<string[]> => (await readText(log)).match(/.*\n/g) ?? [];

const everyStoredFile = async (control: string): Promise<string[]> =>
  (await readdir(control, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => relative(control, join(entry.parentPath, entry.name)))
    .sort();

const expectAllRestorable = async (cwd: string): Promise<void> => {
  for (const note of ['one', 'two', 'three']) {
    await jvs.ok(['restore', `t-${note}`, '--discard'], { cwd });
    expect(await readText(join(cwd, 'f'))).toBe(note);
    expect(await readText(join(cwd, `d-${note}/small`))).toBe(`small ${note}`);
  }
  await jvs.ok(['verify', '--all'], { cwd });
};

describe('a log that has lost lines', () => {
  test.each([
    ['in the middle', (all: string[]) => all.toSpliced(3, 1)],
    ['at its end', (all: string[]) => all.slice(0, -1)],
    ['but the first', (all: string[]) => all.slice(0, 1)],
    ['all of them', () => []],
    ['half of one', (all: string[]) => [...all.slice(0, -1), all.at(-1)?.slice(0, 100) ?? '']],
  ])('%s: nothing is freed, and doctor --repair brings every snapshot back', async (_, lose) => {
    const { cwd, control, log } = await prepare();
    const stored = await everyStoredFile(control);
    await writeFile(log, lose(await lines(log)).join(''));
    await jvs.jvs(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    const refused = await jvs.jvs(['gc', 'run'], { cwd });
    expect(refused.code).toBe(71);
    expect((await examine(cwd)).healthy).toBe(false);
    const present = await everyStoredFile(control);
    expect(stored.filter((name) => !present.includes(name))).toEqual([]);
    const { repaired } = await examine(cwd, '--repair');
    expect(repaired.join('\n')).toMatch(/rebuilt the log/);
    expect(await notes(cwd)).toEqual(['three', 'two', 'one']);
    await expectAllRestorable(cwd);
    expect(await examine(cwd, '--strict')).toMatchObject({ healthy: true });
    await writeFile(join(cwd, 'f'), 'on it goes');
    await jvs.ok(['snapshot', 'four'], { cwd });
  });

  test('that is gone is rebuilt, with the worktrees that are there and what each stood on', async () => {
    const { cwd, log } = await prepare();
    await jvs.ok(['worktree', 'fork', 't-one', 'side'], { cwd });
    const side = join(cwd, '../worktrees/side/main');
    await writeFile(join(side, 'aside'), 'x');
    await jvs.ok(['snapshot', 'aside'], { cwd: side });
    await rm(log);
    expect((await jvs.jvs(['history'], { cwd })).code).toBe(71);
    expect((await jvs.jvs(['snapshot', 'x'], { cwd })).code).toBe(71);
    await examine(cwd, '--repair');
    expect(await notes(cwd)).toEqual(['aside', 'three', 'two', 'one']);
    expect(await jvs.ok(['diff'], { cwd })).toBe('');
    expect(await jvs.ok(['diff'], { cwd: side })).toBe('');
    expect(await examine(cwd)).toMatchObject({ healthy: true, findings: [] });
  });

  test('an edited line is replaced by what the pack says', async () => {
    const { cwd, log } = await prepare();
    await writeFile(log, (await readText(log)).replace('"note":"two"', '"note":"owt"'));
    expect((await examine(cwd)).findings[0]?.description).toMatch(
      /line 4 of the log does not match its hash/,
    );
    await examine(cwd, '--repair');
    expect(await notes(cwd)).toEqual(['three', 'two', 'one']);
    expect(await examine(cwd)).toMatchObject({ healthy: true, findings: [] });
  });

  test('what was collected does not come back with it', async () => {
    const { cwd, log } = await prepare();
    await jvs.ok(['restore', 't-one'], { cwd });
    await writeFile(join(cwd, 'f'), 'lost');
    await jvs.ok(['snapshot', 'lost'], { cwd });
    await writeFile(join(cwd, 'f'), 'kept');
    await jvs.ok(['snapshot', 'kept', '--tag', 't-kept'], { cwd });
    await jvs.ok(['restore', 't-one'], { cwd });
    await writeFile(join(cwd, 'g'), 'g');
    await jvs.ok(['snapshot', 'last'], { cwd });
    await jvs.ok(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    expect(await jvs.json(['gc', 'run'], { cwd })).toMatchObject({ deleted: 1 });
    expect(await examine(cwd)).toMatchObject({ healthy: true, findings: [] });
    await rm(log);
    await examine(cwd, '--repair');
    expect(await notes(cwd)).toEqual(['last', 'kept', 'three', 'two', 'one']);
  });

  test('content that looks like a record is none', async () => {
    const { cwd, control, log } = await prepare();
    const [pack = ''] = await readdir(join(control, 'packs'));
    const bytes = await readFile(join(control, 'packs', pack));
    await writeFile(join(cwd, 'forged'), bytes);
    await jvs.ok(['snapshot', 'with a forged one'], { cwd });
    await rm(log);
    await examine(cwd, '--repair');
    expect(await notes(cwd)).toEqual(['with a forged one', 'three', 'two', 'one']);
  });
});

describe('doctor', () => {
  test('makes directories again that a copy without empty ones has lost', async () => {
    const { cwd, control } = await prepare();
    for (const folder of ['intents', 'gc', 'trees', 'tmp', 'kept', 'locks']) {
      if (folder === 'locks') await rm(join(control, folder), { recursive: true });
      else await rmdir(join(control, folder));
    }
    await jvs.ok(['snapshot', 'four'], { cwd });
    expect(await examine(cwd, '--strict')).toMatchObject({ healthy: true, findings: [] });
  });

  test('writes repository.json again, as the log has it', async () => {
    const { cwd, control } = await prepare();
    const path = join(control, 'repository.json');
    const { repo_id, engine } = JSON.parse(await readText(path));
    for (const broken of ['', '{', '{"format_version":1}', 'null', undefined]) {
      if (broken === undefined) await rm(path);
      else await writeFile(path, broken);
      expect((await jvs.jvs(['history'], { cwd })).code).toBe(71);
      expect((await examine(cwd)).findings[0]).toMatchObject({ category: 'repository' });
      expect((await examine(cwd, '--repair')).repaired).toContain('wrote repository.json again');
      expect(JSON.parse(await readText(path))).toMatchObject({ repo_id, engine });
    }
    expect(await notes(cwd)).toEqual(['three', 'two', 'one']);
  });

  test('sets damaged settings aside', async () => {
    const { cwd, control } = await prepare();
    for (const broken of ['{', '{"default_tags":7}', '{"gc_keep_hours":"x"}', '[]x']) {
      await writeFile(join(control, 'config.json'), broken);
      expect((await jvs.jvs(['history'], { cwd })).code).toBe(71);
      expect((await examine(cwd)).findings[0]).toMatchObject({ category: 'settings' });
      expect(await examine(cwd, '--repair')).toMatchObject({ healthy: true });
      expect(existsSync(join(control, 'config.json'))).toBe(false);
    }
  });

  /** As many as there are, and each time the same. */
  const random = (seed: number) => {
    let state = seed;
    return (below: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return state % below;
    };
  };

  test('answers whatever byte of the store is flipped and wherever a file is cut off', async () => {
    const { cwd, control } = await prepare();
    await jvs.ok(['config', 'set', 'default_tags', 'always'], { cwd });
    await jvs.ok(['gc', 'plan', '--keep-hours', '0'], { cwd });
    const root = join(cwd, '..');
    const sound = join(jvs.home, `sound-${counter}`);
    await cp(root, sound, { recursive: true, preserveTimestamps: true });
    const pick = random(20_261_118);
    const files = (await everyStoredFile(control)).filter((name) => !name.startsWith('locks/'));
    for (const name of files) {
      const path = join(control, name);
      const { size } = await stat(join(sound, '.jvs', name));
      for (const kind of ['flip', 'flip', 'flip', 'cut']) {
        const at = pick(Math.max(1, size));
        if (kind === 'cut') await truncate(path, at);
        else {
          const file = await open(path, 'r+');
          const byte = Buffer.alloc(1);
          await file.read(byte, 0, 1, at);
          byte[0] = (byte[0] ?? 0) ^ (1 << pick(8));
          await file.write(byte, 0, 1, at);
          await file.close();
        }
        const what = `${kind} of ${name} at ${at}`;
        for (const args of [[], ['--strict'], ['--repair']]) {
          const { code, stdout, stderr } = await jvs.jvs(['doctor', '--json', ...args], { cwd });
          // 11: the version of the format is another one.
          expect([0, 11, 71], `${what}: ${stderr}`).toContain(code);
          expect(stderr, what).not.toMatch(/\n\s+at /);
          if (code !== 11) expect(Object.keys(JSON.parse(stdout)), what).toContain('findings');
        }
        const left = await everyStoredFile(control);
        const stored = files.filter((file) => /^(packs|blobs)/.test(file));
        expect(
          stored.filter((file) => !left.includes(file)),
          what,
        ).toEqual([]);
        await rm(root, { recursive: true });
        await cp(sound, root, { recursive: true, preserveTimestamps: true });
      }
    }
    await expectAllRestorable(cwd);
  });
});

describe('gc', () => {
  test('frees nothing while a stored directory is damaged', async () => {
    const { cwd, control } = await prepare();
    await appendFile(join(cwd, 'f'), 'more');
    await jvs.ok(['snapshot', 'four'], { cwd });
    const packs = await readdir(join(control, 'packs'));
    for (const pack of packs) {
      const path = join(control, 'packs', pack);
      const at = (await readFile(path)).lastIndexOf('d-three');
      if (at < 0) continue;
      const file = await open(path, 'r+');
      await file.write('D', at);
      await file.close();
    }
    const stored = await everyStoredFile(control);
    await jvs.jvs(['gc', 'plan', '--keep-hours', '0', '--collect-ancestors'], { cwd });
    const refused = await jvs.jvs(['gc', 'run'], { cwd });
    expect(refused.code).toBe(71);
    expect(refused.stderr).toMatch(/nothing was freed/);
    await examine(cwd, '--repair');
    const present = await everyStoredFile(control);
    expect(stored.filter((name) => !present.includes(name) && !name.startsWith('gc/'))).toEqual([]);
  });
});

describe('a workspace that was copied from btrfs to another filesystem', whereMounts('btrfs'), () => {
  test('forks, is repaired, and goes on with what that filesystem offers', async () => {
    await using btrfs = await MountedFilesystem.create('btrfs', jvs.home);
    await jvs.ok(['init', 'from'], { cwd: btrfs.path });
    const main = join(btrfs.path, 'from/main');
    await writeFile(join(main, 'f'), 'one');
    await jvs.ok(['snapshot', 'one', '--tag', 'one'], { cwd: main });
    await jvs.ok(['worktree', 'fork', 'one', 'side'], { cwd: main });
    await using tmpfs = await MountedFilesystem.withoutDevice('tmpfs', 'size=64m', jvs.home);
    expect((await jvs.bash(`cp -a ${btrfs.path}/from ${tmpfs.path}/to`)).code).toBe(0);
    const root = join(tmpfs.path, 'to');
    const cwd = join(root, 'main');
    await jvs.ok(['worktree', 'fork', 'one', 'other'], { cwd });
    expect(await readText(join(root, 'worktrees/other/main/f'))).toBe('one');
    expect((await examine(cwd)).findings).toMatchObject([{ severity: 'warning', category: 'engine' }]);
    await rm(join(root, 'worktrees/side'), { recursive: true });
    expect((await examine(cwd, '--repair')).repaired).toHaveLength(2);
    expect(await readText(join(root, 'worktrees/side/main/f'))).toBe('one');
    expect(await examine(cwd, '--strict')).toMatchObject({ healthy: true, findings: [], engine: 'copy' });
    await writeFile(join(cwd, 'f'), 'two');
    expect(await jvs.jvs(['snapshot', 'two'], { cwd })).toMatchObject({ code: 0, stderr: '' });
  });
});
