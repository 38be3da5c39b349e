import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmdirSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { homeKey } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { findLeftovers, lookAround } from '../../scripts/testing/leftovers.ts';
import { RunHomes } from '../../scripts/testing/run-homes.ts';
import { Temporary } from '../../scripts/testing/temporary.ts';
import type { TestTotals } from '../../scripts/testing/test-totals.ts';

const repository = join(import.meta.dirname, '..', '..');
let directory: string;

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-test-run-')));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('the totals tell passed, failed, skipped and flaky tests apart, and count what broke outside any test', async () => {
  const totalsPath = join(directory, 'totals.json');
  const fixture = join(import.meta.dirname, 'test-run-fixture');
  const exitCode = await new Promise((resolve) => {
    execFile(
      join(repository, 'node_modules', '.bin', 'vitest'),
      [
        'run',
        '--config',
        'vitest.config.ts',
        `--reporter=${join(repository, 'scripts/testing/totals-reporter.ts')}`,
      ],
      { cwd: fixture, env: { ...process.env, COPPICE_TEST_TOTALS: totalsPath } },
      (error) => resolve(error?.code ?? 0),
    );
  });
  expect(exitCode).toBe(1);
  const totals = JSON.parse(readFileSync(totalsPath, 'utf8')) as TestTotals;
  expect(totals.passed.toSorted()).toEqual([
    'outcomes.fixture.ts > passes',
    'outcomes.fixture.ts > passes at the second try',
  ]);
  expect(totals.failed.toSorted()).toEqual([
    'not-loadable.fixture.ts: this file does not load',
    'outcomes.fixture.ts > a suite: the hook broke',
    'outcomes.fixture.ts > fails',
  ]);
  expect(totals.skipped).toContainEqual({
    test: 'outcomes.fixture.ts > is left out',
    reason: 'the machine lacks it',
  });
  expect(totals.skipped).toContainEqual({
    test: 'outcomes.fixture.ts > a suite that cannot run here > is left out too',
    reason: 'the machine lacks them all',
  });
  expect(totals.skipped).toContainEqual({ test: 'outcomes.fixture.ts > a suite > never runs' });
  expect(totals.flaky).toEqual(['outcomes.fixture.ts > passes at the second try']);
});

test('a process that outlives the test run is found, and is no longer found when it ended', async () => {
  const homes = new RunHomes(directory);
  const child = spawn('sleep', ['600'], { stdio: 'ignore', env: { ...process.env, TMPDIR: directory } });
  try {
    await once(child, 'spawn');
    const thing = `process ${child.pid} sleep 600`;
    await expect.poll(() => lookAround(directory, homes), { timeout: 60_000 }).toContain(thing);
    expect(await findLeftovers(directory, homes, 0)).toContain(thing);
  } finally {
    homes.close();
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  expect(lookAround(directory, homes).filter((thing) => thing.startsWith('process'))).toEqual([]);
});

describe('what homes leave in the kernel', () => {
  /** As the daemon names them, in a home of that directory. */
  const leaveThings = (home: string): string[] => {
    const key = homeKey(home);
    const link = `cp${key}0001`;
    const namespace = `coppice-${key}-sb_left`;
    const cgroup = join(cgroupParent(), `coppice-${key}`);
    mkdirSync(cgroup);
    onTestFinished(() => rmdirSync(cgroup));
    execFileSync('ip', ['netns', 'add', namespace]);
    onTestFinished(() => void execFileSync('ip', ['netns', 'del', namespace]));
    execFileSync('ip', ['link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace]);
    onTestFinished(() => void execFileSync('ip', ['link', 'del', link]));
    execFileSync('nft', ['add', 'table', 'inet', `coppice_${key}`]);
    onTestFinished(() => void execFileSync('nft', ['delete', 'table', 'inet', `coppice_${key}`]));
    return [
      `cgroup ${cgroup}`,
      `network namespace ${namespace}`,
      `network link ${link}`,
      `nftables table inet coppice_${key}`,
    ];
  };

  test.each([
    ['in the temporary directory', 'home'],
    ['in a directory in it', 'of-a-test/home'],
  ])('is found of a home %s of the run, also when that is gone', async (_, place) => {
    const homes = new RunHomes(directory);
    onTestFinished(() => homes.close());
    const home = join(directory, place);
    mkdirSync(home, { recursive: true });
    const things = leaveThings(home);
    await expect.poll(() => homes.has(homeKey(home)), { timeout: 60_000 }).toBe(true);
    rmSync(join(directory, place.split('/')[0]!), { recursive: true });
    expect(await findLeftovers(directory, homes, 0)).toEqual(things);
  });

  test('is found of a home in the temporary directory that came and went while nobody looked', async () => {
    const homes = new RunHomes(directory);
    onTestFinished(() => homes.close());
    const home = join(directory, 'home');
    mkdirSync(home);
    const things = leaveThings(home);
    rmSync(home, { recursive: true });
    expect(await findLeftovers(directory, homes, 0)).toEqual(things);
  });

  test('is no concern of the run where the home is of another daemon', async () => {
    const homes = new RunHomes(directory);
    onTestFinished(() => homes.close());
    const foreign = mkdtempSync(join(tmpdir(), 'coppice-foreign-'));
    onTestFinished(() => rmSync(foreign, { recursive: true }));
    leaveThings(foreign);
    expect(await findLeftovers(directory, homes, 0)).toEqual([]);
  });
});

test('a run whose temporary directory would be on an overlay gets a filesystem of its own, and takes it away', () => {
  const layers = ['lower', 'upper', 'work'].map((layer) => `${layer}dir=${join(directory, layer)}`).join(',');
  const overlay = join(directory, 'overlay');
  // An overlay cannot be the upper layer of another, should this run be on one already.
  execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', directory]);
  try {
    for (const layer of ['lower', 'upper', 'work', 'overlay']) mkdirSync(join(directory, layer));
    execFileSync('mount', ['-t', 'overlay', '-o', layers, 'overlay', overlay]);
    try {
      const temporary = Temporary.make(overlay);
      expect(statfsSync(temporary.path).type).toBe(0xef53);
      writeFileSync(join(temporary.path, 'file'), 'of a test');
      temporary.remove();
      expect(readdirSync(overlay)).toEqual([]);
    } finally {
      execFileSync('umount', [overlay]);
    }
  } finally {
    execFileSync('umount', [directory]);
  }
});

/** A hierarchy that groups can be made in, whatever versions the machine has mounted. */
const cgroupParent = (): string =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => / - cgroup2? /.test(line))
    .map((line) => line.split(' ')[4]!)
    .filter((mount) => mount.startsWith('/sys/fs/cgroup'))
    .at(-1)!;
