import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DriverWorkbench, eventually, runIn, tinyImage } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { makeGvisorDriver } from './gvisor/make-gvisor-driver.ts';

const hasRunsc = ['/usr/bin/runsc', '/usr/local/bin/runsc'].some((path) => existsSync(path));

const open = async () => DriverWorkbench.open(await tinyImage(), makeGvisorDriver);

interface Record {
  readonly process: { readonly pid: number } | null;
  readonly waits?: boolean;
}

const recordOf = (bench: DriverWorkbench, id: string): Record | undefined => {
  const file = join(bench.home, 'gvisor/machines', id, 'gvisor.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Record) : undefined;
};

/** What runsc itself says of a sandbox: created until its first instruction runs. */
const statusOf = (bench: DriverWorkbench, id: string): string => {
  const state = execFileSync('runsc', ['--root', join(bench.home, 'gvisor/runsc'), 'state', id], {
    encoding: 'utf8',
  });
  return (JSON.parse(state) as { status: string }).status;
};

test('a gVisor sandbox is made while its network is, and nothing in it runs before that stands', async ({
  skip,
}) => {
  if (!hasRunsc) skip('runsc is not installed');
  await using bench = await open();
  const network = Promise.withResolvers<void>();
  const spec = bench.spec({ networkStands: network.promise });
  const starting = bench.driver.start(spec);
  await eventually('its kernel waits', () => recordOf(bench, spec.id)?.waits === true);
  expect(statusOf(bench, spec.id)).toBe('created');
  // One that an earlier daemon left like this is no sandbox yet.
  expect(await bench.driver.adopt(spec)).toBeUndefined();
  network.resolve();
  const { guest } = await starting;
  expect(statusOf(bench, spec.id)).toBe('running');
  expect(recordOf(bench, spec.id)?.waits).toBeUndefined();
  expect((await runIn(guest, ['/bin/echo', 'it runs'])).stdout).toBe('it runs\n');
});

test('a gVisor sandbox whose network fails never runs, and nothing is left of it', async ({ skip }) => {
  if (!hasRunsc) skip('runsc is not installed');
  await using bench = await open();
  const network = Promise.withResolvers<void>();
  const spec = bench.spec({ networkStands: network.promise });
  const starting = bench.driver.start(spec);
  const refused = expect(starting).rejects.toThrow('the rules were refused');
  await eventually('its kernel waits', () => recordOf(bench, spec.id)?.waits === true);
  network.reject(new Error('the rules were refused'));
  await refused;
  expect(bench.remains(spec.id)).toEqual([]);
  expect(recordOf(bench, spec.id)).toBeUndefined();
});

test('a memory that cannot be brought back is refused with the reason of runsc, and nothing is left', async ({
  skip,
}) => {
  if (!hasRunsc) skip('runsc is not installed');
  await using bench = await open();
  const spec = bench.spec();
  const restoring = bench.driver.restore!(spec, join(bench.home, 'no-such-memory'));
  await expect(restoring).rejects.toThrow(/no-such-memory|no such file/);
  expect(bench.remains(spec.id)).toEqual([]);
});
