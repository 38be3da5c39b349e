/** What the reporter tells the runner about a run of tests, through a file. */
export interface TestTotals {
  readonly passed: number;
  readonly failed: readonly string[];
  readonly skipped: readonly { readonly test: string; readonly reason: string }[];
  /** Passed, but not at the first try. */
  readonly flaky: readonly string[];
}
