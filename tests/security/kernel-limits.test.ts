import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { Sandbox } from '@coppice/sdk';
import { describeWithMemory, RunningDaemon, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Hog } from './hog.ts';

const mebibyte = 1 << 20;
const smallMemoryMb = 64;

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const drivers = [
  { driver: 'container' as const, missing: undefined },
  { driver: 'gvisor' as const, missing: hasRunsc ? undefined : 'this machine has no runsc' },
];

const setting = (name: string): number => Number(readFileSync(`/proc/sys/${name}`, 'utf8'));

const hasHugePageLimits = (): boolean =>
  ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].some((mount) => {
    const file = `${mount}/cgroup.controllers`;
    return existsSync(file) && readFileSync(file, 'utf8').includes('hugetlb');
  });

/** So few that nobody else on this machine notices. */
const few = 10;

for (const { driver, missing } of drivers) {
  describe(`a hostile sandbox of ${driver}`, skipFor(missing), () => {
    let daemon: RunningDaemon;
    let hog: Hog;

    beforeAll(async () => {
      hog = await Hog.build();
      daemon = await RunningDaemon.start({ config: { default_driver: driver } });
    });
    afterAll(async () => {
      await daemon?.[Symbol.asyncDispose]();
      hog?.[Symbol.dispose]();
    });

    const make = (changes = {}): Promise<Sandbox> =>
      daemon.client.sandboxes.create({ memory_mb: 512, disk_mb: 256, ...changes });

    test.each([
      ['inotify instances', 'inotify', () => setting('fs/inotify/max_user_instances')],
      ['inotify watches', 'watch', () => setting('fs/inotify/max_user_watches')],
      ['POSIX message queues', 'mqueue', () => 1000],
      ['pending signals', 'signal', () => 200_000],
      ['timers', 'timer', () => 200_000],
    ])('leaves root of the host and other sandboxes their %s', async (_, thing, all) => {
      await using attacker = await make();
      await using neighbour = await make();
      expect(await hog.onHost(thing, few)).toMatchObject({ count: few });
      using _held = await hog.hold(attacker, thing, all());
      expect(await hog.onHost(thing, few)).toMatchObject({ count: few });
      using neighbours = await hog.hold(neighbour, thing, few);
      expect(neighbours.taken).toMatchObject({ count: few });
    });

    test('takes none of the asynchronous I/O requests that the whole machine shares', async () => {
      const requests = 1000;
      const before = setting('fs/aio-nr');
      await using attacker = await make();
      using _held = await hog.hold(attacker, 'aio', requests);
      expect(setting('fs/aio-nr')).toBeLessThan(before + requests);
    });

    test('takes few of the terminals that the whole machine shares', async () => {
      const most = 400;
      const before = setting('kernel/pty/nr');
      await using attacker = await make();
      await using neighbour = await make();
      using _held = await hog.hold(attacker, 'terminal', most);
      expect(setting('kernel/pty/nr')).toBeLessThan(before + most);
      using neighbours = await hog.hold(neighbour, 'terminal', few);
      expect(neighbours.taken).toMatchObject({ count: few });
    });

    test.each(['unix-stream', 'unix-datagram', 'tcp', 'udp', 'netlink-user'])(
      'holds little more than its memory limit in sockets: %s',
      async (thing) => {
        await using attacker = await make({ memory_mb: smallMemoryMb });
        using held = await hog.hold(attacker, thing, 6000);
        expect(held.taken.socketBytes).toBeLessThan(1.5 * smallMemoryMb * mebibyte);
      },
    );

    test.each([
      ['pipes', 'pipe', 4000],
      ['SysV messages', 'message', 32_000],
      ['SysV shared memory', 'segment', 256],
      ['SysV semaphores', 'semaphores', 500],
      ['epoll sets', 'epoll', 1_000_000],
      ['files in memory', 'memory-file', 256],
    ])('holds no more than its memory limit in %s', async (_, thing, most) => {
      await using attacker = await make({ memory_mb: smallMemoryMb });
      await using neighbour = await make();
      using held = await hog.hold(attacker, thing, most);
      // All of it would take several times the limit. In gVisor some of it takes no memory until it is used.
      if (driver === 'container') expect(held.taken.reason).not.toBe('enough');
      expect((await neighbour.exec('echo alive')).stdout).toBe('alive\n');
    });

    test('gets none of the huge pages that were set aside for something else', async ({ skip }) => {
      const pages = 4;
      const before = setting('vm/nr_hugepages');
      writeFileSync('/proc/sys/vm/nr_hugepages', String(before + pages));
      onTestFinished(() => writeFileSync('/proc/sys/vm/nr_hugepages', String(before)));
      if (setting('vm/nr_hugepages') < before + pages) skip('this machine has no room for huge pages');
      if ((await hog.onHost('huge-page', pages)).count < pages) skip('its huge pages are not 2 MiB each');
      if (!hasHugePageLimits()) skip('cgroups of version 2 have no hugetlb controller here');
      await using attacker = await make();
      using held = await hog.hold(attacker, 'huge-page', pages);
      // gVisor has memory of its own to give.
      if (driver === 'container') expect(held.taken).toMatchObject({ count: 0, reason: 'ENOMEM' });
      expect(await hog.onHost('huge-page', pages)).toMatchObject({ count: pages });
    });

    test('gets no program for the kernel’s packet filters, whose memory the whole machine shares', async () => {
      await using attacker = await make();
      using held = await hog.hold(attacker, 'filter', few);
      // gVisor takes such programs and runs them itself.
      if (driver === 'container') expect(held.taken).toMatchObject({ count: 0, reason: 'EPERM' });
      else expect(held.taken.count).toBeLessThanOrEqual(few);
    });
  });
}

describeWithMemory('a hostile sandbox that was restored with its memory', ({ config }) => {
  test('leaves root of the host its inotify instances', async () => {
    using hog = await Hog.build();
    await using daemon = await RunningDaemon.start({ config });
    await using origin = await daemon.client.sandboxes.create({ memory_mb: 512, disk_mb: 256 });
    const { id: snapshot } = await origin.checkpoint();
    const { sandboxes } = await origin.fork({ snapshot });
    await using attacker = sandboxes[0]!;
    expect(await hog.onHost('inotify', few)).toMatchObject({ count: few });
    using _held = await hog.hold(attacker, 'inotify', setting('fs/inotify/max_user_instances'));
    expect(await hog.onHost('inotify', few)).toMatchObject({ count: few });
  });
});
