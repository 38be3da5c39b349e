import { writeFileSync } from 'node:fs';
import type { Reporter, SerializedError, TestCase, TestModule, TestSuite } from 'vitest/node';
import type { TestTotals } from './test-totals.ts';

/** Given by the test itself, or by it or a suite around it for the whole machine (`skipFor` in the testkit). */
const reasonOf = (test: TestCase, note: string | undefined): string | undefined => {
  if (note !== undefined) return note;
  for (let task: TestCase | TestSuite | TestModule = test; task.type !== 'module'; task = task.parent) {
    const { lacking } = task.meta();
    if (lacking !== undefined) return lacking;
  }
  return undefined;
};

/** A test that runs again with sanitized programs is another one. */
const titleOf = (test: TestCase): string => {
  const title = `${test.module.relativeModuleId} > ${test.fullName}`;
  return test.project.name === 'sanitized' ? `sanitized: ${title}` : title;
};

/** Writes the totals of a run as JSON to the file that COPPICE_TEST_TOTALS names. */
export default class TotalsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const path = process.env.COPPICE_TEST_TOTALS;
    if (path === undefined) return;
    const totals = {
      passed: [] as string[],
      failed: [] as string[],
      skipped: [] as { test: string; reason?: string }[],
      flaky: [] as string[],
    };
    for (const module of modules) {
      // A file that did not load, and hooks outside any test, have no test of their own to fail.
      for (const error of module.errors()) totals.failed.push(`${module.relativeModuleId}: ${error.message}`);
      for (const suite of module.children.allSuites()) {
        for (const error of suite.errors())
          totals.failed.push(`${module.relativeModuleId} > ${suite.fullName}: ${error.message}`);
      }
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === 'passed') totals.passed.push(titleOf(test));
        else if (result.state === 'failed') totals.failed.push(titleOf(test));
        else if (result.state === 'skipped') {
          const reason = reasonOf(test, result.note);
          totals.skipped.push({ test: titleOf(test), ...(reason !== undefined && { reason }) });
        } else totals.failed.push(`${titleOf(test)}: never ran to an end`);
        if (test.diagnostic()?.flaky === true) totals.flaky.push(titleOf(test));
      }
    }
    for (const error of unhandled) totals.failed.push(`outside any test: ${error.message}`);
    writeFileSync(path, JSON.stringify(totals satisfies TestTotals));
  }
}
