import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { judge, readPromises, readThreats } from '../../scripts/testing/promises.ts';

const repository = join(import.meta.dirname, '..', '..');

test.each([
  ['SPECIFICATION.md', 1, readPromises(repository)],
  // Nine phases and 85 tests.
  ['docs/agents-plan.md', 94, readPromises(repository, 'docs/agents-plan.md')],
  ['docs/threat-model.md', 100, readThreats(repository)],
])('every promise of %s names a test that exists', (_, least, promises) => {
  expect(promises.length).toBeGreaterThanOrEqual(least);
  const numbers = promises.map(({ number }) => number);
  expect(numbers).toEqual([...new Set(numbers)]);
  const unheld = promises.filter(({ heldBy }) => {
    if (heldBy === undefined || !existsSync(join(repository, heldBy.file))) return true;
    return !readFileSync(join(repository, heldBy.file), 'utf8').includes(heldBy.title);
  });
  expect(unheld).toEqual([]);
});

test('no test is skipped by a means that gives no reason', () => {
  const files = globSync(['packages/*/test/**/*.ts', 'packages/testkit/src/*.ts', 'tests/**/*.ts'], {
    cwd: repository,
    exclude: (path) => path.includes('node_modules'),
  });
  expect(files.length).toBeGreaterThan(100);
  const silent = files.filter((file) =>
    /\b(describe|it|test)(\.\w+)*\.(skip|skipIf|runIf|todo)\(/.test(
      readFileSync(join(repository, file), 'utf8'),
    ),
  );
  expect(silent).toEqual([]);
});

describe('a promise', () => {
  const promises = [{ number: 'A1', heldBy: { file: 'a.test.ts', title: 'keeps %s whole' } }];
  const nothing = { passed: [], failed: [], skipped: [], flaky: [] };
  const verdict = (totals: Partial<Parameters<typeof judge>[1]>) =>
    judge(promises, { ...nothing, ...totals });
  const none = { held: [], notHeldHere: [], failed: [], unheld: [] };

  test('is held by a test that passed in the run, whatever its suite and its parameters', () => {
    const skipped = [{ test: 'a.test.ts > disks > keeps others whole', reason: 'no xfs here' }];
    expect(verdict({ passed: ['a.test.ts > disks > keeps files whole'], skipped })).toEqual({
      ...none,
      held: ['A1'],
    });
  });

  test('is not held by a test that was skipped, and the reason is said', () => {
    const skipped = [{ test: 'a.test.ts > keeps files whole', reason: 'no xfs here' }];
    expect(verdict({ skipped })).toEqual({ ...none, notHeldHere: ['A1 (no xfs here)'] });
  });

  test('is not held by a test that failed, also where it passed with other parameters', () => {
    const passed = ['a.test.ts > keeps files whole'];
    expect(verdict({ passed, failed: ['a.test.ts > keeps links whole'] })).toEqual({
      ...none,
      failed: ['A1'],
    });
  });

  test.each([
    ['did not run', {}],
    ['was skipped without a reason', { skipped: [{ test: 'a.test.ts > keeps files whole' }] }],
    ['passed in another file', { passed: ['b.test.ts > keeps files whole'] }],
    ['passed under a longer title', { passed: ['a.test.ts > keeps files whole or not'] }],
  ])('is broken when its test %s', (_, totals) => {
    expect(verdict(totals).unheld).toEqual(['A1: did not run: a.test.ts › keeps %s whole']);
  });

  test('that names a suite which several files run is held by any of them', () => {
    const shared = [{ number: 'A2', heldBy: { file: 'testkit/conformance.ts', title: 'shares pages' } }];
    const passed = ['disk-btrfs.test.ts > disks on btrfs > shares pages'];
    expect(judge(shared, { ...nothing, passed }).held).toEqual(['A2']);
    expect(judge(shared, nothing).unheld).toHaveLength(1);
  });

  test('that names no test is broken', () => {
    expect(judge([{ number: 'A3' }], nothing).unheld).toEqual(['A3: the row names no test']);
  });
});
