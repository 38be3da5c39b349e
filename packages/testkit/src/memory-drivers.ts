import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe } from 'vitest';
import { skipFor } from './skip-for.ts';

/** A driver that keeps memory, and what a daemon must be told so that its sandboxes do. */
export interface MemoryDriver {
  readonly name: 'gvisor' | 'container';
  /** For config.json; makes it the default as well. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Why it cannot be tested on this machine. */
  readonly missing: string | undefined;
}

const criu = fileURLToPath(new URL('../../../.tools/criu/criu', import.meta.url));

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));

const memoryDrivers: readonly MemoryDriver[] = [
  {
    name: 'gvisor',
    // The machine may have a CRIU; whoever tests that one keeps no memory counts on there being none.
    config: { default_driver: 'gvisor', criu: '/nonexistent/criu' },
    missing: hasRunsc ? undefined : 'this machine has no runsc',
  },
  {
    name: 'container',
    config: { default_driver: 'container', criu },
    missing: existsSync(criu) ? undefined : 'set-up could not get CRIU 4 for the tests',
  },
];

/** The same is promised of each of them; one that this machine lacks is skipped, with the reason. */
export const describeWithMemory = (title: string, suite: (driver: MemoryDriver) => void): void => {
  for (const driver of memoryDrivers) {
    const { name, missing } = driver;
    describe(`${title} of ${name}`, skipFor(missing), () => suite(driver));
  }
};
