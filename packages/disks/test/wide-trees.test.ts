import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  applyMerge,
  diffTrees,
  type LayeredTree,
  PoolServer,
  planMerge,
  type TreeChange,
  UpperWriter,
} from '@coppice/disks';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { comparePaths } from '../src/layered/path-order.ts';
import { bytesOfText } from '../src/layered/path-text.ts';
import { makeTemporaryDirectory, poolProgram, run } from './pool-fixture.ts';

let root: string;
let server: PoolServer;

beforeAll(async () => {
  root = await makeTemporaryDirectory();
  server = new PoolServer({ programPath: poolProgram });
});
afterAll(async () => {
  await server.close();
  await run('rm', ['-rf', root]);
});

const makeTree = async (name: string, script: string): Promise<LayeredTree> => {
  const [imageDir, upperDir] = [join(root, 'image'), join(root, name, 'upper')];
  await mkdir(imageDir, { recursive: true });
  await mkdir(upperDir, { recursive: true });
  await run('python3', ['-c', `import os\n${script}`], { cwd: upperDir });
  return { imageDirs: [imageDir], upperDir };
};

describe('a directory with more than is read at once', () => {
  const count = 20_000;
  /** Names that sort in another order as text than as bytes are among them. */
  const fill = (step: number, extra: string): string =>
    `os.mkdir('many')\nfor number in range(${count}):\n  if number % ${step}: open(f'many/{number}', 'w').write('x')\n${extra}`;
  let before: LayeredTree;
  let after: LayeredTree;

  beforeAll(async () => {
    before = await makeTree('before', fill(30, "open('many/\\U0001F600', 'w')"));
    after = await makeTree('after', fill(50, "open('many/\\uff5e', 'w')"));
  });

  it('leaves everybody else a turn while it is compared, also where nothing has to be read', async () => {
    const nothing = await makeTree('nothing', '');
    let turns = 0;
    let found = 0;
    const takeTurn = (): void => {
      turns += 1;
      setImmediate(takeTurn).unref();
    };
    for await (const { change } of diffTrees(server, nothing, after)) {
      if (found === 0) setImmediate(takeTurn).unref();
      expect(change).toBe('added');
      found += 1;
    }
    expect(found).toBeGreaterThan(16_384);
    expect(turns).toBeGreaterThan(50);
  });

  it('is compared name by name', async () => {
    const changes: TreeChange[] = [];
    for await (const change of diffTrees(server, before, after)) changes.push(change);
    const numbers = Array.from({ length: count }, (_, number) => number);
    const expected = [
      ...numbers
        .filter((number) => number % 30 === 0 && number % 50 !== 0)
        .map((number) => `added /many/${number}`),
      ...numbers
        .filter((number) => number % 50 === 0 && number % 30 !== 0)
        .map((number) => `removed /many/${number}`),
      'added /many/\uff5e',
      'removed /many/\u{1f600}',
    ];
    expect(changes.map(({ path, change }) => `${change} ${path}`).sort()).toEqual(expected.sort());
    const paths = changes.map(({ path }) => path);
    expect(paths).toEqual(
      [...paths].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other))),
    );
  });

  it('is merged', async () => {
    const into = await makeTree('into', fill(30, "open('many/\\U0001F600', 'w')\nopen('mine', 'w')"));
    const plan = await planMerge(server, before, into, after);
    expect(plan.conflicts).toEqual([]);
    await applyMerge(server, plan, after, new UpperWriter(server, into));
    const left: string[] = [];
    for await (const { path, change } of diffTrees(server, into, after)) left.push(`${change} ${path}`);
    expect(left).toEqual(['removed /mine']);
  });
});

describe('directories that are wide on every level', () => {
  it('are compared whole, although only the deepest of them keep what they listed', async () => {
    const script = (changed: string): string =>
      `for level in range(30):\n  for number in range(40): open(f'{number}', 'w').write('${changed}' if number % 7 == 0 else 'same')\n  os.mkdir('2d')\n  os.chdir('2d')`;
    const [one, other] = [
      await makeTree('wide-one', script('old1')),
      await makeTree('wide-other', script('new2')),
    ];
    const changes: string[] = [];
    for await (const { path, change } of diffTrees(server, one, other)) changes.push(`${change} ${path}`);
    expect(changes).toHaveLength(30 * 6);
    expect(new Set(changes).size).toBe(30 * 6);
    expect(changes.every((change) => /^modified (\/2d)*\/(0|7|14|21|28|35)$/.test(change))).toBe(true);
  });
});

describe('the order of paths', () => {
  const name = fc
    .array(fc.constantFrom('a', 'b', '-', '0', '\u{1f600}', '\uff5e', '\udc80', '\udcff', 'é'), {
      minLength: 1,
      maxLength: 4,
    })
    .map((parts) => parts.join(''));
  const path = fc.array(name, { maxLength: 4 });

  it('is that of a walk: parts one by one, by their bytes, what is shorter first', () => {
    const model = (one: readonly string[], other: readonly string[]): number => {
      for (let at = 0; at < Math.min(one.length, other.length); at += 1) {
        const order = Buffer.compare(bytesOfText(one[at]!), bytesOfText(other[at]!));
        if (order !== 0) return order;
      }
      return one.length - other.length;
    };
    fc.assert(
      fc.property(path, path, (one, other) => {
        const order = comparePaths(one.join('/'), other.join('/'));
        expect(Math.sign(order)).toBe(Math.sign(model(one, other)));
      }),
      { numRuns: 2000 },
    );
  });
});
