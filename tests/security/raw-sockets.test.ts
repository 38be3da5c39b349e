import { execFile } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { DriverWorkbench, shellIn, tinyImage } from '@coppice/testkit';
import { describe, expect, test } from 'vitest';
import { makeContainerDriver } from '../../packages/runtime/test/container/make-container-driver.ts';
import { makeGvisorDriver } from '../../packages/runtime/test/gvisor/make-gvisor-driver.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const source = fileURLToPath(new URL('./raw-socket-probe.c', import.meta.url));

const expected = [
  ...['raw IPv4', 'raw IPv4 that is not inherited', 'raw IPv6', 'raw packets', 'packets'].map(
    (what) => `${what} refused`,
  ),
  ...['TCP', 'UDP', 'netlink'].map((what) => `${what} opened`),
];

describe.each([
  { driver: 'container', make: makeContainerDriver, missing: false },
  { driver: 'gvisor', make: makeGvisorDriver, missing: !hasRunsc },
] as const)('root of a sandbox of the driver $driver', ({ driver, make, missing }) => {
  test('makes no packets of its own, also as root of a user namespace that it makes', async ({ skip }) => {
    if (missing) skip('this machine has no runsc');
    await using bench = await DriverWorkbench.open(await tinyImage(), make);
    const spec = bench.spec();
    mkdirSync(join(spec.diskDir, 'upper/root'));
    await promisify(execFile)('cc', ['-static', '-O1', '-o', join(spec.diskDir, 'upper/root/probe'), source]);
    const { guest } = await bench.driver.start(spec);
    expect((await shellIn(guest, '/root/probe')).stdout.trim().split('\n')).toEqual(expected);
    for (const options of ['-Ur', '-Urn']) {
      const { stdout, code } = await shellIn(guest, `unshare ${options} /root/probe`);
      // Containers make no user namespaces at all.
      if (driver === 'container') expect(code).not.toBe(0);
      else expect(stdout.trim().split('\n')).toEqual(expected);
    }
  });
});
