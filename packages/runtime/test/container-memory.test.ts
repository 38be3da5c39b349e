import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DriverWorkbench, eventually, shellIn, skipFor, tinyImage } from '@coppice/testkit';
import { describe, expect, test } from 'vitest';
import { HomeCgroups } from '../src/cgroups/home-cgroups.ts';
import { watchedPlaces } from '../src/drivers/container/watched-places.ts';
import { ContainerDriver, type Machine, type MachineSpec } from '../src/index.ts';

const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const criuProgram = path('.tools/criu/criu');
const reason = existsSync(criuProgram) ? undefined : 'set-up could not get CRIU 4 for the tests';

const makeDriver = (home: string, homeKey: string): ContainerDriver =>
  new ContainerDriver({
    home,
    homeKey,
    programs: { launch: path('native/build/coppice-launch'), agent: path('native/build/coppice-agent') },
    criuProgram,
  });

/** What isolates it, as seen from inside. */
const walls = [
  'grep -E "^(Cap|NoNewPrivs|Seccomp|Groups)" /proc/self/status',
  'cut -d " " -f 4- /proc/self/mountinfo | sed "s/ - .*//" | sort',
  'cat /proc/self/cgroup /proc/keys',
  'for file in /proc/sysrq-trigger /proc/sys/kernel/hostname /dev/new /sys/new; do (echo x > $file) 2>&1; done',
  'unshare -m true 2>&1; mount -t tmpfs x /tmp 2>&1; hostname mine 2>&1',
].join('; ');

const uidOf = (machine: Machine): number =>
  Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${machine.pid}/status`, 'utf8'))?.[1]);

describe('the memory of a container', skipFor(reason), () => {
  const memoryOf = (bench: DriverWorkbench, spec: MachineSpec) => join(bench.home, 'memory', spec.id);

  /** The disk of the same instant is copied while the sandbox stands still, as the store does. */
  async function branch(bench: DriverWorkbench, source: Machine, of: MachineSpec): Promise<MachineSpec> {
    const spec = bench.spec();
    const copy = async () => {
      execFileSync('cp', ['-a', join(of.diskDir, 'upper'), spec.diskDir]);
    };
    await source.checkpoint(memoryOf(bench, spec), copy);
    return spec;
  }

  test('is restored behind the same walls, as another user of the host, again and again', async () => {
    await using bench = await DriverWorkbench.open(await tinyImage(), makeDriver);
    const first = bench.spec();
    const source = await bench.driver.start(first);
    await shellIn(source.guest, 'echo mine > /root/file; mkdir /run/here; echo kept > /run/here/file');
    const job = await source.guest.startJob({ argv: ['/bin/sh', '-c', 'while :; do sleep 0.02; done'] });
    const { stdout: expected } = await shellIn(source.guest, walls);
    expect(expected).toContain('Seccomp:\t2');

    const second = await branch(bench, source, first);
    const fork = await bench.driver.restore(second, memoryOf(bench, second));
    const third = await branch(bench, fork, second);
    const twig = await bench.driver.restore(third, memoryOf(bench, third));
    for (const { guest } of [source, fork, twig]) {
      expect((await shellIn(guest, walls)).stdout).toBe(expected);
      expect((await shellIn(guest, 'cat /root/file /run/here/file')).stdout).toBe('mine\nkept\n');
      expect(await guest.listJobs()).toMatchObject([{ id: job.id, running: true }]);
    }
    expect(new Set([0, uidOf(source), uidOf(fork), uidOf(twig)]).size).toBe(4);

    await shellIn(twig.guest, 'echo new > /home/user/file; chown 1000:1000 /home/user/file');
    expect(statSync(join(third.diskDir, 'upper/home/user/file'))).toMatchObject({ uid: 1000, gid: 1000 });
    expect((await shellIn(fork.guest, 'ls /home/user')).stdout).toBe('');
    for (const machine of [source, fork, twig]) {
      await machine.stop(0);
      expect(bench.remains(machine.id)).toEqual([]);
    }
  });

  test('is kept while a call is under way, which goes on', async () => {
    await using bench = await DriverWorkbench.open(await tinyImage(), makeDriver);
    const spec = bench.spec();
    const source = await bench.driver.start(spec);
    const call = shellIn(
      source.guest,
      'i=0; while test ! -e /root/go; do i=$((i+1)); echo $i; done; echo done',
    );
    for (let round = 0; round < 3; round++) await branch(bench, source, spec);
    await shellIn(source.guest, 'touch /root/go');
    const lines = (await call).stdout.trim().split('\n');
    expect(lines.pop()).toBe('done');
    expect(lines).toEqual(lines.map((_, index) => String(index + 1)));
  });

  test('the agent that memory is of stays while something may go on with it, and no longer', async () => {
    const installed = (home: string) => join(home, 'installed-agent');
    const makeUpgradable = (home: string, homeKey: string): ContainerDriver => {
      if (!existsSync(installed(home))) copyFileSync(path('native/build/coppice-agent'), installed(home));
      const programs = { launch: path('native/build/coppice-launch'), agent: installed(home) };
      return new ContainerDriver({ home, homeKey, programs, criuProgram });
    };
    await using bench = await DriverWorkbench.open(await tinyImage(), makeUpgradable);
    const agents = () => readdirSync(join(bench.home, 'agents')).sort();
    const first = bench.spec();
    const source = await bench.driver.start(first);
    const second = await branch(bench, source, first);
    await source.stop(0);
    const [old] = agents();
    // An upgrade.
    appendFileSync(installed(bench.home), '\0');
    const driver = await bench.renewDriver();
    await (await driver.start(bench.spec())).stop(0);
    expect(agents()).toHaveLength(2);
    expect(driver.forgetPrograms([join(bench.home, 'nothing'), memoryOf(bench, second)])).toEqual([]);
    const fork = await driver.restore(second, memoryOf(bench, second));
    expect((await shellIn(fork.guest, 'echo on')).stdout).toBe('on\n');
    expect(driver.forgetPrograms([])).toEqual([]);
    await fork.stop(0);
    writeFileSync(join(bench.home, 'agents', `${old}.1`), 'cut short');
    expect(driver.forgetPrograms([]).sort()).toEqual([old, `${old}.1`]);
    expect(agents()).toHaveLength(1);
    expect((await shellIn((await bench.start()).guest, 'echo new')).stdout).toBe('new\n');
  });

  test('a driver that finds a checkpoint half done lets the sandbox go on', async () => {
    await using bench = await DriverWorkbench.open(await tinyImage(), makeDriver);
    const spec = bench.spec();
    const source = await bench.driver.start(spec);
    const gate = Promise.withResolvers<void>();
    let isFrozen = false;
    const checkpoint = source.checkpoint(memoryOf(bench, spec), () => {
      isFrozen = true;
      return gate.promise;
    });
    await eventually('it stands still', () => isFrozen);
    const driver = await bench.renewDriver();
    const again = await driver.adopt(spec);
    expect((await shellIn(again!.guest, 'echo here')).stdout).toBe('here\n');
    // What comes back too late is not taken.
    gate.reject(new Error('given up'));
    await expect(checkpoint).rejects.toThrow('given up');
    expect((await shellIn(again!.guest, 'echo still')).stdout).toBe('still\n');
    expect((await driver.adopt(spec))!.guest).toBe(again!.guest);
  });
});

test('CRIU is told to search real directories of the sandbox only, none that a link leads to', async () => {
  await using bench = await DriverWorkbench.open(await tinyImage(), makeDriver);
  const spec = bench.spec();
  const { pid, guest } = await bench.driver.start(spec);
  await shellIn(
    guest,
    'rm -rf /srv /opt /home; mkdir -p /var /app /home /root; ln -s /usr /srv; ln -s / /var/www; ln -s / /opt',
  );
  const stop = new AbortController();
  await guest.watch('/home', { recursive: false, signal: stop.signal }).ready;
  const { freezerDirectory } = new HomeCgroups(`coppice-${bench.homeKey}`).group(spec.id);
  expect(watchedPlaces(pid, freezerDirectory)).toEqual(['/root', '/home', '/app', '/workspace', '/tmp']);
  stop.abort();
});
