import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** A second or third try is reported as flaky at the end of the run, and is a bug to find. */
const patience = { testTimeout: 600_000, hookTimeout: 600_000, retry: 2 };

/** Tests that load, fill or break the machine run after all others, one file at a time. */
const heavy = ['tests/{faults,perf,soak}/**/*.test.ts'];

/** Built by set-up; where it could not, tests/security/sanitizers.test.ts says so. */
const sanitized = join(import.meta.dirname, '.tools/native-sanitized');

/** Some of the tests of packages once more, with programs that end when they touch memory that is not theirs. */
const withSanitizers = {
  test: {
    ...patience,
    name: 'sanitized',
    include: [
      'packages/disks/test/{parcels,pool,engine}.test.ts',
      'packages/runtime/test/{guest-*,launcher,container-lifecycle,container-security,gvisor-start,oci/layers}.test.ts',
      'packages/workspaces/test/{trees-*,jvs-commands}.test.ts',
    ],
    env: { COPPICE_GUEST_PROGRAMS: sanitized, COPPICE_TREE_PROGRAM: join(sanitized, 'coppice-tree') },
    globalSetup: ['scripts/testing/sanitizer-reports.ts'],
    maxWorkers: 2,
    sequence: { groupOrder: 0 },
  },
};

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
      ...(existsSync(join(sanitized, 'coppice-tree')) ? [withSanitizers] : []),
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
