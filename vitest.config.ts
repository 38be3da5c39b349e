import { defineConfig } from 'vitest/config';

/** A second or third try is reported as flaky at the end of the run, and is a bug to find. */
const patience = { testTimeout: 600_000, hookTimeout: 600_000, retry: 2 };

/** Tests that load, fill or break the machine run after all others, one file at a time. */
const heavy = ['tests/{faults,perf,soak}/**/*.test.ts'];

export default defineConfig({
  test: {
    pool: 'forks',
    projects: [
      {
        test: {
          ...patience,
          name: 'packages',
          include: ['packages/*/test/**/*.test.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...patience,
          name: 'system',
          include: ['tests/**/*.test.ts'],
          exclude: [...heavy, '**/node_modules/**'],
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...patience,
          name: 'heavy',
          include: heavy,
          maxWorkers: 1,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
