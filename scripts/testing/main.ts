/**
 * The test run: checks, then tests, then a look at what they left behind. Nothing that fails hides the rest,
 * and the last line is the sum of all: N passed, N failed, N skipped.
 */
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CheckOutcome, runChecks } from './checks.ts';
import { findLeftovers, lookAround } from './leftovers.ts';
import type { TestTotals } from './test-totals.ts';

const isChecksOnly = process.argv.includes('--checks');
const paths = process.argv.slice(2).filter((argument) => argument !== '--checks');
const isTestsOnly = paths.length > 0;

const printCheck = ({ check, passed, output, seconds }: CheckOutcome): void => {
  console.log(`${passed ? 'passed' : 'FAILED'}  check: ${check.name} (${seconds.toFixed(1)} s)`);
  if (!passed) console.log(`${output.trimEnd()}\n  hint: ${check.hint}\n`);
};

/** Exit code or signal of vitest; undefined when all went well. */
const runVitest = (temporary: string, totalsPath: string): Promise<string | undefined> =>
  new Promise((resolve) => {
    const args = ['run', '--reporter=default', '--reporter=./scripts/testing/totals-reporter.ts', ...paths];
    const child = spawn('vitest', args, {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { ...process.env, TMPDIR: temporary, COPPICE_TEST_TOTALS: totalsPath },
    });
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => resolve(code === 0 ? undefined : `ended with ${signal ?? code}`));
  });

const readTotals = (path: string, failure: string | undefined): TestTotals => {
  try {
    const totals = JSON.parse(readFileSync(path, 'utf8')) as TestTotals;
    // Vitest knows of failures that belong to no test.
    if (failure !== undefined && totals.failed.length === 0)
      return { ...totals, failed: [`vitest ${failure}`] };
    return totals;
  } catch {
    return {
      passed: 0,
      failed: [`vitest gave no totals (${failure ?? 'it ended well'})`],
      skipped: [],
      flaky: [],
    };
  }
};

/** Runs the tests with a temporary directory of their own, by which all that they make can be told. */
const runTests = async (): Promise<TestTotals> => {
  // Short, as sockets live below it and their paths are limited to 107 bytes.
  const temporary = mkdtempSync(join(tmpdir(), 'ct-'));
  // Tests that run as somebody else pass through it, and see nothing in it.
  chmodSync(temporary, 0o711);
  const totalsPath = join(temporary, 'totals.json');
  const before = lookAround(temporary);
  const failure = await runVitest(temporary, totalsPath);
  const totals = readTotals(totalsPath, failure);
  rmSync(totalsPath, { force: true });
  const left = (await findLeftovers(before, temporary)).map((thing) => `left behind: ${thing}`);
  const files = readdirSync(temporary).filter((name) => name !== 'node-compile-cache');
  if (files.length > 0)
    console.log(`note: the tests left files in their temporary directory: ${files.join(', ')}`);
  // With a mount still below it, removing would reach into what is mounted.
  if (left.length === 0) rmSync(temporary, { recursive: true, force: true });
  return { ...totals, failed: [...totals.failed, ...left] };
};

const outcomes = isTestsOnly ? [] : await runChecks(printCheck);
const totals: TestTotals = isChecksOnly
  ? { passed: 0, failed: [], skipped: [], flaky: [] }
  : await runTests();

const passed = outcomes.filter((outcome) => outcome.passed).length + totals.passed;
const failed = [
  ...outcomes.filter((outcome) => !outcome.passed).map((outcome) => `check: ${outcome.check.name}`),
  ...totals.failed,
];
for (const { test, reason } of totals.skipped) console.log(`skipped: ${test} (${reason})`);
for (const test of totals.flaky) console.log(`flaky: ${test} (failed once, then passed)`);
for (const failure of failed) console.log(`failed: ${failure}`);
console.log(`${passed} passed, ${failed.length} failed, ${totals.skipped.length} skipped`);
process.exitCode = failed.length === 0 ? 0 : 1;
