import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DriverWorkbench, eventually, runIn, tinyImage } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { type GvisorRecord, readRecord } from '../src/drivers/gvisor/gvisor-record.ts';
import { makeGvisorDriver } from './gvisor/make-gvisor-driver.ts';

const hasRunsc = ['/usr/bin/runsc', '/usr/local/bin/runsc'].some((path) => existsSync(path));

const open = async () => DriverWorkbench.open(await tinyImage(), makeGvisorDriver);

const recordOf = (bench: DriverWorkbench, id: string) =>
  readRecord(join(bench.home, 'gvisor/machines', id, 'gvisor.json'));

/** What runsc itself has written of a sandbox: created until its first instruction runs. Asked, it waits for the gate. */
const statusOf = (bench: DriverWorkbench, id: string): string => {
  const directory = join(bench.home, 'gvisor/runsc');
  const file = readdirSync(directory).find((name) => name.startsWith(id) && name.endsWith('.state'))!;
  return (JSON.parse(readFileSync(join(directory, file), 'utf8')) as { status: string }).status;
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

test('every process of a gVisor sandbox goes before anything of the host when memory runs out, and dumps no core', async ({
  skip,
}) => {
  if (!hasRunsc) skip('runsc is not installed');
  await using bench = await open();
  const { id } = await bench.start();
  const pids = readdirSync('/proc').filter(
    (name) => /^\d+$/.test(name) && readIfThere(`/proc/${name}/cgroup`).includes(`/${id}`),
  );
  // The relay, the file server and the kernel of the sandbox at least.
  expect(pids.length).toBeGreaterThanOrEqual(3);
  for (const pid of pids) {
    const [score, limits] = [readIfThere(`/proc/${pid}/oom_score_adj`), readIfThere(`/proc/${pid}/limits`)];
    if (score === '') continue;
    expect(score).toBe('800\n');
    expect(limits).toMatch(/^Max core file size +[01] +[01] /m);
    expect(Number(/^Max open files +\d+ +(\d+)/m.exec(limits)?.[1])).toBeLessThanOrEqual(65_536);
  }
});

const readIfThere = (path: string): string => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // It ended since.
    return '';
  }
};

const halfStarted = {
  'is being made': () => true,
  waits: (record) => record.waits === true,
} satisfies Record<string, (record: GvisorRecord) => boolean>;

test.for(['is being made', 'waits'] as const)(
  'of a gVisor sandbox that %s when its daemon dies nothing is left to the next one, where it starts',
  async (stage, { skip }) => {
    if (!hasRunsc) skip('runsc is not installed');
    await using bench = await open();
    const spec = bench.spec();
    const program = fileURLToPath(new URL('./gvisor/start-and-wait.ts', import.meta.url));
    const child = spawn(process.execPath, [program, bench.home, bench.homeKey, JSON.stringify(spec)], {
      stdio: 'inherit',
    });
    try {
      await eventually(`it ${stage}`, () => {
        const record = recordOf(bench, spec.id);
        return record !== undefined && halfStarted[stage](record);
      });
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
      expect(await bench.driver.adopt(spec)).toBeUndefined();
      expect(bench.remains(spec.id)).toEqual([]);
      expect(recordOf(bench, spec.id)).toBeUndefined();
    } finally {
      child.kill('SIGKILL');
      execFileSync('ip', ['netns', 'del', `coppice-${bench.homeKey}-${spec.id.slice(-4)}`]);
    }
    const { guest } = await bench.driver.start(spec);
    expect((await runIn(guest, ['/bin/echo', 'it runs'])).stdout).toBe('it runs\n');
  },
);

test('a gVisor sandbox of which not even a record was written is swept', async ({ skip }) => {
  if (!hasRunsc) skip('runsc is not installed');
  await using bench = await open();
  const { id } = bench.spec();
  mkdirSync(join(bench.home, 'gvisor/machines', id), { recursive: true });
  expect(await bench.driver.sweep(new Set())).toEqual([id]);
  expect(readdirSync(join(bench.home, 'gvisor/machines'))).toEqual([]);
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
