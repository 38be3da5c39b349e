import { writeFileSync } from 'node:fs';
import type { Reporter, SerializedError, TestCase, TestModule } from 'vitest/node';
import type { TestTotals } from './test-totals.ts';

const titleOf = (test: TestCase): string => `${test.module.relativeModuleId} > ${test.fullName}`;

/** Writes the totals of a run as JSON to the file that COPPICE_TEST_TOTALS names. */
export default class TotalsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const path = process.env.COPPICE_TEST_TOTALS;
    if (path === undefined) return;
    const totals = {
      passed: 0,
      failed: [] as string[],
      skipped: [] as { test: string; reason: string }[],
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
        if (result.state === 'passed') totals.passed += 1;
        else if (result.state === 'failed') totals.failed.push(titleOf(test));
        else if (result.state === 'skipped') {
          totals.skipped.push({ test: titleOf(test), reason: result.note ?? 'no reason given' });
        } else totals.failed.push(`${titleOf(test)}: never ran to an end`);
        if (test.diagnostic()?.flaky === true) totals.flaky.push(titleOf(test));
      }
    }
    for (const error of unhandled) totals.failed.push(`outside any test: ${error.message}`);
    writeFileSync(path, JSON.stringify(totals satisfies TestTotals));
  }
}
