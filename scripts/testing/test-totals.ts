/** What the reporter tells the runner about a run of tests, through a file. Tests are named `file > suites > title`. */
export interface TestTotals {
  readonly passed: readonly string[];
  readonly failed: readonly string[];
  /** Without a reason where the test gives none. */
  readonly skipped: readonly { readonly test: string; readonly reason?: string }[];
  /** Passed, but not at the first try. */
  readonly flaky: readonly string[];
}
