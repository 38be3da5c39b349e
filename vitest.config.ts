import { defineConfig } from 'vitest/config';

const timeouts = { testTimeout: 600_000, hookTimeout: 600_000 };

/** Tests that load, fill or break the machine run after all others, one file at a time. */
const heavy = ['tests/{faults,perf,soak}/**/*.test.ts'];

export default defineConfig({
  test: {
    pool: 'forks',
    projects: [
      {
        test: {
          ...timeouts,
          name: 'packages',
          include: ['packages/*/test/**/*.test.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'system',
          include: ['tests/**/*.test.ts'],
          exclude: heavy,
          maxWorkers: 2,
          // A second try is reported as flaky at the end of the run, and is a bug to find.
          retry: 1,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'heavy',
          include: heavy,
          maxWorkers: 1,
          fileParallelism: false,
          retry: 1,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
