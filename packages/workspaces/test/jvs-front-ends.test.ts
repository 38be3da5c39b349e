import { appendFile, chmod, mkdir, open, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf, JvsFixture } from './jvs-fixture.ts';

/** Plain commands are understood by coppice-tree itself, all others by Node. What they ask for is the same work. */
let jvs: JvsFixture;
let counter = 0;
beforeAll(async () => {
  jvs = await JvsFixture.create();
  // In place of Node: says that it was needed, and for what.
  await jvs.program('node-stand-in', 'shift; echo "node: $*"; exit 77');
});
afterAll(() => jvs[Symbol.asyncDispose]());

const workspace = async (below = jvs.work): Promise<string> => {
  counter += 1;
  await jvs.ok(['init', `ws-${counter}`], { cwd: below });
  const cwd = join(below, `ws-${counter}`, 'main');
  await mkdir(join(cwd, 'd/e'), { recursive: true });
  for (const name of ['a', 'd/b', 'd/e/c']) await writeFile(join(cwd, name), `one ${name}`);
  await writeFile(join(cwd, 'large'), Buffer.alloc(300_000, 1));
  await symlink('a', join(cwd, 'link'));
  // A large file that is as young as its snapshot is read and stored again by the next one.
  await setTimeout(100);
  return cwd;
};

const direct = (args: readonly string[]): [string, ...string[]] => [
  jvs.env.COPPICE_TREE_PROGRAM ?? '',
  ...['jvs', join(jvs.bin, 'node-stand-in'), '--option', 'jvs.mjs', ...args],
];

const withoutNode = (args: readonly string[], cwd: string, env: Record<string, string> = {}) => {
  const [program, ...rest] = direct(args);
  return jvs.run(program, rest, { cwd, env });
};

const needsNode = async (args: readonly string[], cwd: string, env?: Record<string, string>) => {
  const log = await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8');
  expect(await withoutNode(args, cwd, env)).toMatchObject({
    code: 77,
    stdout: `node: jvs.mjs ${args.join(' ')}\n`,
  });
  expect(await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8')).toBe(log);
};

const control = (cwd: string, folder: string): Promise<string[]> => readdir(join(cwd, '../.jvs', folder));

/** Ids, times and hashes differ between two workspaces; nothing else may. Each id becomes its number in the log. */
const neutral = (text: string, log: string): string => {
  const ids = log.match(/(?<="snapshot_id":")\w+/g) ?? [];
  return [...new Set(ids)]
    .reduce((rest, id, at) => rest.replaceAll(id, `ID-${at}`).replaceAll(id.slice(0, 8), `SHORT-${at}`), text)
    .replace(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3}Z)?/g, 'TIME')
    .replace(/[0-9a-f]{64}(:[0-9a-f]{16}:\d+:\d+)?/g, 'HASH')
    .replace(/"repo_id":"[^"]*"/g, '"repo_id":"ID"');
};

const story = async (
  cwd: string,
  run: (args: readonly string[]) => Promise<{ code: number | null; stdout: string; stderr: string }>,
): Promise<string> => {
  const said: string[] = [];
  const step = async (...args: string[]): Promise<void> => {
    const { code, stdout, stderr } = await run(args);
    said.push(`${args.join(' ')} ${code}\n${stdout}${stderr}`);
  };
  await step('snapshot', 'first', '--tag', 'base', '--tag', 'v1.0');
  await step('restore', 'HEAD');
  await appendFile(join(cwd, 'a'), ' more');
  await step('snapshot', 'Änderung, 50 % <of> "it": {x} \\n');
  await step('snapshot');
  await writeFile(join(cwd, 'odd'), Buffer.alloc(1280, 7));
  await rm(join(cwd, 'd/e'), { recursive: true });
  await chmod(join(cwd, 'd/b'), 0o750);
  await step('restore', 'HEAD');
  await step('restore', 'base');
  await step('restore', 'HEAD');
  await writeFile(join(cwd, 'odd'), Buffer.alloc(1280, 7));
  await step('snapshot', 'odd', '--tag', 'odd');
  const log = await readFile(join(cwd, '../.jvs/log.jsonl'), 'utf8');
  return neutral(`${said.join('')}${log}`, log);
};

describe('the two front ends', () => {
  test('say and write down the same', async () => {
    const [one, other] = [await workspace(), await workspace()];
    const direct = await story(one, (args) => withoutNode(args, one));
    // Any option takes Node.
    const byNode = await story(other, (args) => jvs.jvs([...args, '--no-color'], { cwd: other }));
    expect(direct).toBe(byNode);
    for (const cwd of [one, other]) {
      expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true, findings: [] });
      expect(await control(cwd, 'intents')).toEqual([]);
      expect(await control(cwd, 'tmp')).toEqual([]);
    }
  });

  test('what is more than plain is left to Node, and nothing is changed', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one', '--tag', 'one'], cwd);
    for (const args of [
      ['history'],
      ['snapshot', '-'],
      ['snapshot', 'two', 'words'],
      ['snapshot', 'left\u200fright'],
      ['snapshot', '--tag'],
      ['snapshot', '--tag', 'a,b'],
      ['snapshot', '--tag', 'HEAD'],
      ['snapshot', '--tag', 'same', '--tag', 'same'],
      ['snapshot', '--json'],
      ['restore'],
      ['restore', 'on'],
      ['restore', 'HEAD', '--discard'],
      ['--json', 'restore', 'HEAD'],
    ])
      await needsNode(args, cwd);
    await needsNode(['snapshot', 'x'], cwd, { JVS_ENGINE: 'copy' });
    await writeFile(join(cwd, '../.jvs/intents/left.json'), '{}');
    await needsNode(['snapshot', 'x'], cwd);
    await rm(join(cwd, '../.jvs/intents/left.json'));
    await jvs.ok(['config', 'set', 'default_tags', 'always'], { cwd });
    await needsNode(['snapshot', 'x'], cwd);
    await needsNode(['snapshot', 'x'], cwd);
  });

  test('a log that cannot be read is for Node to complain about', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    const log = join(cwd, '../.jvs/log.jsonl');
    const text = await readFile(log, 'utf8');
    for (const broken of [
      text.replace('"note":"one"', '"note":"one'),
      text.replace('"snapshot_id"', '"id"'),
      `${text}{}\n`,
    ]) {
      await writeFile(log, broken);
      await needsNode(['snapshot', 'x'], cwd);
    }
    await writeFile(log, `${text}{"seq":9,"torn`);
    expect(await withoutNode(['snapshot', 'two'], cwd)).toMatchObject({ code: 0 });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
  });

  test('another command at work is waited for by Node', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    const { stdout } = await jvs.bash(
      `exec 9> ../.jvs/locks/worktree-main
       flock 9
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs snapshot x 9>&- || true`,
      { cwd },
    );
    expect(stdout).toBe('node: snapshot x\n');
  });

  test('what fails is undone, and explained in the same words', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one', '--tag', 'one'], cwd);
    await appendFile(join(cwd, 'd/b'), ' more');
    const before = await digestOf(cwd);
    const [pack = ''] = await control(cwd, 'packs');
    const file = await open(join(cwd, '../.jvs/packs', pack), 'r+');
    const bytes = await file.readFile();
    await file.write('X', bytes.indexOf('one d/b'));
    await file.close();
    for (const option of [[], ['--no-color']]) {
      const { code, stderr } = await jvs.jvs(['restore', 'one', ...option], { cwd });
      expect(code).toBe(71);
      expect(stderr).toMatch(
        /jvs: error: the stored content of d\/b does not match its hash\nhint: Run `jvs verify --all`/,
      );
      expect(await digestOf(cwd)).toBe(before);
    }
    expect(await control(cwd, 'intents')).toEqual([]);
    expect(await control(cwd, 'tmp')).toEqual([]);
    expect(await control(cwd, 'packs')).toHaveLength(2);
    expect(await jvs.json(['doctor'], { cwd })).toMatchObject({ healthy: true });
  });

  test('without input, output and stderr, nothing of the workspace is written to in their place', async () => {
    const cwd = await workspace();
    await withoutNode(['snapshot', 'one'], cwd);
    await appendFile(join(cwd, 'a'), ' more');
    await jvs.bash('"$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs restore HEAD <&- >&- 2>&-', { cwd });
    expect(await jvs.json(['doctor', '--strict'], { cwd })).toMatchObject({ healthy: true });
    expect(await readFile(join(cwd, 'a'), 'utf8')).toBe('one a');
  });

  test('a notice that nobody reads does not stop a snapshot', async () => {
    const cwd = await workspace();
    const { stdout } = await jvs.bash(
      `exec 8> >(:)
       wait $!
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs snapshot one > /dev/null
       echo more >> a
       "$COPPICE_TREE_PROGRAM" jvs node-stand-in jvs.mjs restore HEAD 2>&8`,
      { cwd },
    );
    expect(stdout).toMatch(/^Restored \w+ "one": /);
  });
});
