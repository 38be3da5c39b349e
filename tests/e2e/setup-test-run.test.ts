import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findLeftovers, lookAround } from '../../scripts/testing/leftovers.ts';
import type { TestTotals } from '../../scripts/testing/test-totals.ts';

const repository = join(import.meta.dirname, '..', '..');
let directory: string;

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-test-run-')));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('the totals tell passed, failed, skipped and flaky tests apart, and count what broke outside any test', async () => {
  const totalsPath = join(directory, 'totals.json');
  const fixture = join(import.meta.dirname, 'test-run-fixture');
  const exitCode = await new Promise((resolve) => {
    execFile(
      join(repository, 'node_modules', '.bin', 'vitest'),
      [
        'run',
        '--config',
        'vitest.config.ts',
        `--reporter=${join(repository, 'scripts/testing/totals-reporter.ts')}`,
      ],
      { cwd: fixture, env: { ...process.env, COPPICE_TEST_TOTALS: totalsPath } },
      (error) => resolve(error?.code ?? 0),
    );
  });
  expect(exitCode).toBe(1);
  const totals = JSON.parse(readFileSync(totalsPath, 'utf8')) as TestTotals;
  expect(totals.passed).toBe(2);
  expect(totals.failed.toSorted()).toEqual([
    'not-loadable.fixture.ts: this file does not load',
    'outcomes.fixture.ts > a suite: the hook broke',
    'outcomes.fixture.ts > fails',
  ]);
  expect(totals.skipped).toContainEqual({
    test: 'outcomes.fixture.ts > is left out',
    reason: 'the machine lacks it',
  });
  expect(totals.flaky).toEqual(['outcomes.fixture.ts > passes at the second try']);
});

test('a process that outlives the test run is found, and is no longer found when it ended', async () => {
  const before = lookAround(directory);
  const child = spawn('sleep', ['600'], { stdio: 'ignore', env: { ...process.env, TMPDIR: directory } });
  try {
    await once(child, 'spawn');
    const thing = `process ${child.pid} sleep 600`;
    await expect.poll(() => [...lookAround(directory)], { timeout: 60_000 }).toContain(thing);
    expect(await findLeftovers(before, directory, 0)).toContain(thing);
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  expect([...lookAround(directory)].filter((thing) => thing.startsWith('process'))).toEqual([]);
});
