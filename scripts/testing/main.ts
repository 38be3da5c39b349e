/**
 * The test run: checks, then tests, then a look at what they left behind. Nothing that fails hides the rest,
 * and the last line is the sum of all: N passed, N failed, N skipped.
 */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type CheckOutcome, runChecks } from './checks.ts';
import { findLeftovers } from './leftovers.ts';
import { type Judgement, judge, readPromises, readThreats } from './promises.ts';
import { RunHomes } from './run-homes.ts';
import { Temporary } from './temporary.ts';
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
      passed: [],
      failed: [`vitest gave no totals (${failure ?? 'it ended well'})`],
      skipped: [],
      flaky: [],
    };
  }
};

/** Runs the tests with a temporary directory of their own, by which all that they make can be told. */
const runTests = async (): Promise<TestTotals> => {
  const made = Temporary.make();
  const temporary = made.path;
  const totalsPath = join(temporary, 'totals.json');
  const homes = new RunHomes(temporary);
  const failure = await runVitest(temporary, totalsPath);
  const totals = readTotals(totalsPath, failure);
  rmSync(totalsPath, { force: true });
  const left = (await findLeftovers(temporary, homes)).map((thing) => `left behind: ${thing}`);
  homes.close();
  const files = readdirSync(temporary).filter((name) => name !== 'node-compile-cache');
  if (files.length > 0)
    console.log(`note: the tests left files in their temporary directory: ${files.join(', ')}`);
  // With a mount still below it, removing would reach into what is mounted.
  if (left.length === 0) made.remove();
  return { ...totals, failed: [...totals.failed, ...left] };
};

const outcomes = isTestsOnly ? [] : await runChecks(printCheck);
const totals: TestTotals = isChecksOnly
  ? { passed: [], failed: [], skipped: [], flaky: [] }
  : await runTests();

/** Only of a run of all tests: one of some says nothing about the promises of the others. */
const judgement: Judgement | undefined =
  isChecksOnly || isTestsOnly ? undefined : judge([...readPromises('.'), ...readThreats('.')], totals);

const passed = outcomes.filter((outcome) => outcome.passed).length + totals.passed.length;
const failed = [
  ...outcomes.filter((outcome) => !outcome.passed).map((outcome) => `check: ${outcome.check.name}`),
  ...totals.failed,
  ...totals.skipped
    .filter(({ reason }) => reason === undefined)
    .map(({ test }) => `${test}: skipped without a reason`),
  ...(judgement?.unheld ?? []).map((promise) => `promise ${promise}`),
];
for (const { test, reason } of totals.skipped)
  console.log(`skipped: ${test} (${reason ?? 'no reason given'})`);
for (const test of totals.flaky) console.log(`flaky: ${test} (failed once, then passed)`);
for (const promise of judgement?.notHeldHere ?? [])
  console.log(`promise not held in this run, its test was skipped: ${promise}`);
for (const promise of judgement?.failed ?? []) console.log(`promise not held, its test failed: ${promise}`);
for (const failure of failed) console.log(`failed: ${failure}`);
if (judgement !== undefined) {
  const { held, notHeldHere } = judgement;
  const broken = judgement.failed.length + judgement.unheld.length;
  console.log(`promises: ${held.length} held, ${broken} not held, ${notHeldHere.length} skipped`);
}
if (totals.flaky.length > 0)
  console.log(`FLAKY: ${totals.flaky.length} of the passed tests failed at first; each is a bug to find`);
console.log(`${passed} passed, ${failed.length} failed, ${totals.skipped.length} skipped`);
process.exitCode = failed.length === 0 ? 0 : 1;
