import type { TestOptions } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** Why a test, or all tests of a suite, cannot run on this machine. The end of a test run prints it. */
    lacking?: string;
  }
}

/** Options for a test or a suite that the machine may be unable to run: skipped when there is a reason, which is printed. */
export const skipFor = (reason: string | undefined): TestOptions =>
  reason === undefined ? {} : { skip: true, meta: { lacking: reason } };
