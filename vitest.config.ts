import { defineConfig } from 'vitest/config';

/** One try: a test that passes at the second has found something, in itself or in what it tests. */
export const patience = { testTimeout: 600_000, hookTimeout: 600_000, retry: 0 };

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
