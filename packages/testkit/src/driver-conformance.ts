import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { GuestProcess, ImageRoot } from '@coppice/runtime';
import { beforeAll, describe, expect, test } from 'vitest';
import {
  DriverWorkbench,
  eventually,
  imageRootOf,
  type MakeDriver,
  runIn,
  shellIn,
} from './driver-workbench.ts';
import { listTree } from './list-tree.ts';
import { mountAt } from './mount-at.ts';
import { tinyImage } from './tiny-image.ts';

/** What a driver may lack by its nature. Everything else is promised by all. */
export interface DriverTraits {
  /** A process that takes too much memory is killed, and the sandbox goes on. */
  readonly survivesOutOfMemory?: boolean;
  /** The limit of processes counts the sandbox's own processes one by one. */
  readonly countsPids?: boolean;
}

const mebibyte = 1 << 20;
const run = promisify(execFile);

/** The promises of the Driver port; each implementation runs them all. */
export function describeDriver(name: string, makeDriver: MakeDriver, traits: DriverTraits = {}): void {
  const { survivesOutOfMemory = true, countsPids = true } = traits;
  let image: string;
  const open = () => DriverWorkbench.open(image, makeDriver);

  describe(`a sandbox of the ${name} driver`, () => {
    beforeAll(async () => {
      image = await tinyImage();
    });

    test('runs programs and hands over their output and exit code', async () => {
      await using bench = await open();
      const { guest } = await bench.start();
      const result = await shellIn(guest, 'echo out; echo err >&2; exit 7');
      expect(result).toMatchObject({ stdout: 'out\n', stderr: 'err\n', code: 7, signal: null });
    });

    test('has the hostname it was given, and takes a new one while it runs', async () => {
      await using bench = await open();
      const machine = await bench.start({ hostname: 'first-name' });
      expect((await shellIn(machine.guest, 'hostname')).stdout).toBe('first-name\n');
      if (machine.setHostname === undefined) await machine.guest.setHostname('second-name');
      else await machine.setHostname('second-name');
      expect((await shellIn(machine.guest, 'hostname')).stdout).toBe('second-name\n');
    });

    test('shows files of its memory over files of its root, and has nothing of that on its disk', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      const { guest } = machine;
      await shellIn(
        guest,
        `mkdir -p /etc/store /run/coppice; echo own > /etc/store/real; ln -s store/real /etc/led
         echo first > /run/coppice/one; echo second > /run/coppice/two`,
      );
      const cover = (file: string, place: string) => machine.cover([{ file: `/run/coppice/${file}`, place }]);
      await cover('one', '/etc/led');
      await cover('one', '/etc/store/real');
      await cover('one', '/etc/absent');
      await cover('one', '/etc/store');
      expect((await shellIn(guest, 'cat /etc/led; ls /etc/store; ls /etc/absent')).stdout).toBe(
        'first\nreal\n',
      );
      // Programs that would replace it fail, and do not lose what they wrote without a word.
      const changed = await shellIn(
        guest,
        'echo x > /etc/led; rm -f /etc/store/real; mv /etc/passwd /etc/store/real',
      );
      expect(changed.code).not.toBe(0);
      await cover('two', '/etc/led');
      expect((await shellIn(guest, 'cat /etc/store/real')).stdout).toBe('second\n');
      expect(readFileSync(join(spec.diskDir, 'upper/etc/store/real'), 'utf8')).toBe('own\n');
    });

    test('mounts no directory over another, whatever stands at the two places', async () => {
      await using bench = await open();
      const machine = await bench.start();
      await shellIn(
        machine.guest,
        'mkdir -p /run/coppice /etc/all; ln -s /proc /run/coppice/one; echo own > /etc/file',
      );
      for (const place of ['/etc/all', '/etc/file'])
        await machine.cover([{ file: '/run/coppice/one', place }]).catch(() => {});
      expect((await shellIn(machine.guest, 'ls /etc/all; cat /etc/file')).stdout).toBe('own\n');
    });

    test('is root inside and nobody of the host outside', async () => {
      await using bench = await open();
      const machine = await bench.start();
      expect((await shellIn(machine.guest, 'id -u')).stdout).toBe('0\n');
      const uids = /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${machine.pid}/status`, 'utf8'));
      expect(Number(uids?.[1])).toBeGreaterThan(0);
    });

    test('runs a program as another user of its own', async () => {
      await using bench = await open();
      const { guest } = await bench.start();
      const result = await shellIn(guest, 'id -u; id -g; pwd', { user: 'user' });
      expect(result.stdout).toBe('1000\n1000\n/workspace\n');
    });

    test('keeps its files over a stop and a start, with natural owners on the disk', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const first = await bench.driver.start(spec);
      await shellIn(
        first.guest,
        'echo mine > /root/a; echo theirs > /home/user/b; chown 1000:1000 /home/user/b',
      );
      await first.stop(1000);
      const upper = join(spec.diskDir, 'upper');
      expect(statSync(join(upper, 'root/a'))).toMatchObject({ uid: 0, gid: 0 });
      expect(statSync(join(upper, 'home/user/b'))).toMatchObject({ uid: 1000, gid: 1000 });
      const second = await bench.driver.start(spec);
      expect((await shellIn(second.guest, 'cat /root/a /home/user/b')).stdout).toBe('mine\ntheirs\n');
    });

    test('is left alone by the end of the one that it follows', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const first = await bench.driver.start(spec);
      await first.stop(0);
      const second = await bench.driver.start(spec);
      await first.exited;
      // Longer than anybody looks whether a machine has ended.
      await sleep(500);
      expect((await shellIn(second.guest, 'echo alive')).stdout).toBe('alive\n');
    });

    test('keeps what is written to /tmp on its disk, and leaves nothing there by itself', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      expect(listTree(join(spec.diskDir, 'upper'))).toEqual([]);
      await shellIn(machine.guest, 'echo kept > /tmp/x; echo gone > /run/y');
      await machine.stop(0);
      expect(readFileSync(join(spec.diskDir, 'upper/tmp/x'), 'utf8')).toBe('kept\n');
      expect(listTree(join(spec.diskDir, 'upper')).map(({ path }) => path)).toEqual(['tmp', 'tmp/x']);
    });

    test('never changes the image', async () => {
      await using bench = await open();
      const before = listTree(image);
      const { guest } = await bench.start();
      const script = 'rm /etc/group; echo x >> /etc/passwd; chmod 700 /etc; mv /usr/bin/seq /tmp; touch /new';
      expect((await shellIn(guest, script)).code).toBe(0);
      expect(
        (await shellIn(guest, 'ls /tmp; tail -n 1 /etc/passwd; test -e /etc/group || echo gone')).stdout,
      ).toBe('seq\nx\ngone\n');
      expect(listTree(image)).toEqual(before);
    });

    test('keeps symbolic links as they are, dangling ones too', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const first = await bench.driver.start(spec);
      await shellIn(first.guest, 'ln -s /etc/passwd /root/good; ln -s ../nowhere /root/dangling');
      await first.stop(0);
      const { guest } = await bench.driver.start(spec);
      expect((await shellIn(guest, 'readlink /root/good /root/dangling; head -c 4 /root/good')).stdout).toBe(
        '/etc/passwd\n../nowhere\nroot',
      );
    });

    test('shows a directory of the host at /workspace, whose owner is root inside', async () => {
      await using bench = await open();
      const workspaceDir = join(bench.home, 'workspace');
      mkdirSync(workspaceDir);
      writeFileSync(join(workspaceDir, 'from-host'), 'hello');
      const { guest } = await bench.start({ mounts: [mountAt(workspaceDir)] });
      const script = 'cat from-host; stat -c %u from-host; echo back > made; echo x > user; chown 1000 user';
      const result = await shellIn(guest, script, { cwd: '/workspace' });
      expect(result.stdout).toBe('hello0\n');
      expect(readFileSync(join(workspaceDir, 'made'), 'utf8')).toBe('back\n');
      expect(statSync(join(workspaceDir, 'made')).uid).toBe(statSync(workspaceDir).uid);
      expect((await shellIn(guest, 'stat -c %u user', { cwd: '/workspace' })).stdout).toBe('1000\n');
    });

    test('shows several directories of the host at their paths, made where they are missing, and writes to none that is read-only', async () => {
      await using bench = await open();
      const mounts = ['one', 'two', 'three'].map((name) => {
        const directory = join(bench.home, name);
        mkdirSync(directory);
        writeFileSync(join(directory, 'from-host'), name);
        return mountAt(
          directory,
          { one: '/workspace', two: '/srv/deep/two', three: '/data' }[name],
          name === 'three',
        );
      });
      const spec = bench.spec({ mounts });
      const first = await bench.driver.start(spec);
      const script = `cat /workspace/from-host /srv/deep/two/from-host /data/from-host; stat -c ' %a' /srv /srv/deep
        for at in /workspace /srv/deep/two /data; do echo x > $at/made; mkdir $at/dir; done
        for change in 'echo x > /data/from-host' 'rm /data/from-host' 'chmod 777 /data/from-host' 'mv /data/from-host /data/x' 'mount -o remount,rw /data'
        do sh -c "$change" || echo refused; done`;
      const { stdout } = await shellIn(first.guest, script);
      expect(stdout).toBe(`onetwothree 755\n 755\n${'refused\n'.repeat(5)}`);
      for (const [number, entries] of [3, 3, 1].entries())
        expect(readdirSync(mounts[number]!.hostPath), mounts[number]!.guestPath).toHaveLength(entries);
      expect(statSync(join(mounts[2]!.hostPath, 'from-host')).mode & 0o777).not.toBe(0o777);
      // Not on the disk of the sandbox: there its places are empty.
      expect(readdirSync(join(spec.diskDir, 'upper/srv/deep/two'))).toEqual([]);
      await first.stop(0);
      const { guest } = await bench.driver.start(spec);
      expect((await shellIn(guest, 'cat /srv/deep/two/made; ls /data')).stdout).toBe('x\nfrom-host\n');
    });

    test('goes on when a program in it takes too much memory', async ({ skip }) => {
      skip(!survivesOutOfMemory, 'here too much memory ends the whole sandbox');
      await using bench = await open();
      const limits = { cpus: 2, memoryBytes: 64 * mebibyte, pids: 64 };
      const machine = await bench.start({ limits });
      const result = await shellIn(machine.guest, 'head -c 300M /dev/zero | tail -c 300M | wc -c');
      expect(result.stdout).not.toBe(`${300 * mebibyte}\n`);
      expect((await machine.usage()).oomKills).toBeGreaterThan(0);
      expect((await shellIn(machine.guest, 'echo alive')).stdout).toBe('alive\n');
    });

    test('tells programs what its limits are, not what the machine has', async ({ skip }) => {
      skip(availableParallelism() < 2, 'a machine with one processor has nothing to hide');
      await using bench = await open();
      const limits = { cpus: 0.5, memoryBytes: 192 * mebibyte, pids: 64 };
      const machine = await bench.start({ limits });
      const script =
        'nproc; grep -E "^(MemTotal|SwapTotal)" /proc/meminfo | tr -s " "; cat /sys/devices/system/cpu/online';
      const { stdout } = await shellIn(machine.guest, script);
      expect(stdout.replace(/^(\d+)(-\1)?\n$/m, '$1\n')).toMatch(
        /^1\nMemTotal: 196608 kB\nSwapTotal: 0 kB\n\d+(-\d+)?\n$/,
      );
      await shellIn(machine.guest, 'head -c 64M /dev/zero > /dev/shm/x');
      const free = async () =>
        Number((await shellIn(machine.guest, 'sed -n "s/MemFree: *//p" /proc/meminfo')).stdout.split(' ')[0]);
      await eventually('what is taken is not free', async () => (await free()) < (192 - 64) * 1024);
    });

    test('has no more processes than its limit, which may be raised', async ({ skip }) => {
      skip(!countsPids, 'here the limit counts the threads of the sandbox as a whole');
      await using bench = await open();
      const limits = { cpus: 2, memoryBytes: 256 * mebibyte, pids: 20 };
      const machine = await bench.start({ limits });
      const sleepers: GuestProcess[] = [];
      const fill = async (count: number) => {
        for (let index = 0; index < count; index++)
          sleepers.push(await machine.guest.exec({ argv: ['sleep', '9999'] }));
      };
      await expect(fill(30)).rejects.toThrow();
      expect((await machine.usage()).pids).toBeLessThanOrEqual(20);
      await machine.setLimits({ ...limits, pids: 100 });
      await fill(30);
      for (const sleeper of sleepers) sleeper.close();
    });

    test('holds a fork bomb, so that others go on and it can be stopped', async ({ skip }) => {
      skip(!countsPids, 'here the limit counts the threads of the sandbox as a whole');
      await using bench = await open();
      const spec = bench.spec({ limits: { cpus: 1, memoryBytes: 256 * mebibyte, pids: 60 } });
      const bombed = await bench.driver.start(spec);
      await bombed.guest.startJob({ argv: ['/bin/sh', '-c', 'bomb() { bomb | bomb & }; bomb; sleep 9999'] });
      await eventually('the bomb fills the sandbox', async () => (await bombed.usage()).pids >= 50);
      const other = await bench.start();
      expect((await shellIn(other.guest, 'echo fine')).stdout).toBe('fine\n');
      expect((await bombed.usage()).pids).toBeLessThanOrEqual(60);
      await bombed.stop(0);
      expect(bench.remains(spec.id)).toEqual([]);
    });

    test('stands still while it is frozen, and goes on afterwards', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      const script = 'while :; do i=$((i + 1)); echo $i > /root/counter; done';
      await machine.guest.startJob({ argv: ['/bin/sh', '-c', script] });
      const counter = join(spec.diskDir, 'upper/root/counter');
      const count = () => statSync(counter, { throwIfNoEntry: false }) && readFileSync(counter, 'utf8');
      await eventually('it counts', () => Number(count()) > 10);
      await machine.freeze();
      const frozenAt = count();
      for (let look = 0; look < 200; look++) {
        await new Promise((resolve) => setImmediate(resolve));
        expect(count()).toBe(frozenAt);
      }
      await machine.thaw();
      await eventually('it counts on', () => count() !== frozenAt);
    });

    test('can be stopped while it is frozen, twice, and leaves nothing', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      await machine.freeze();
      await Promise.all([machine.stop(1000), machine.stop(0)]);
      await machine.stop(1000);
      expect(bench.remains(spec.id)).toEqual([]);
    });

    test('leaves no process, mount or cgroup when it is stopped, even if its programs refuse to end', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      const stubborn = "trap '' TERM HUP INT; echo > /root/ready; while :; do sleep 9999; done";
      await machine.guest.startJob({ argv: ['/bin/sh', '-c', stubborn] });
      await machine.guest.startJob({ argv: ['setsid', '/bin/sh', '-c', 'sleep 9999'] });
      const ready = join(spec.diskDir, 'upper/root/ready');
      await eventually('it ignores signals', () => statSync(ready, { throwIfNoEntry: false }) !== undefined);
      expect(bench.remains(spec.id)).not.toEqual([]);
      await machine.stop(50);
      await machine.exited;
      expect(bench.remains(spec.id)).toEqual([]);
    });

    test('says that it is gone when its PID 1 is killed, and can be started again', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start(spec);
      await machine.guest.startJob({ argv: ['sleep', '9999'] });
      process.kill(machine.pid, 'SIGKILL');
      await machine.exited;
      expect(bench.remains(spec.id)).toEqual([]);
      const again = await bench.driver.start(spec);
      expect((await shellIn(again.guest, 'echo back')).stdout).toBe('back\n');
    });

    test('outlives its driver and is adopted by the next one', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const before = await bench.driver.start(spec);
      const job = await before.guest.startJob({ argv: ['sleep', '9999'] });
      await bench.renewDriver();
      const machine = await bench.driver.adopt(spec);
      expect(machine?.pid).toBe(before.pid);
      expect(await machine?.guest.listJobs()).toMatchObject([{ pid: job.pid, running: true }]);
      await machine?.stop(0);
      await machine?.exited;
      expect(bench.remains(spec.id)).toEqual([]);
      expect(await bench.driver.adopt(spec)).toBeUndefined();
    });

    test('goes on when it is adopted after its driver died in a freeze', async () => {
      await using bench = await open();
      const spec = bench.spec();
      await (await bench.driver.start(spec)).freeze();
      await bench.renewDriver();
      const machine = await bench.driver.adopt(spec);
      expect((await shellIn(machine!.guest, 'echo awake')).stdout).toBe('awake\n');
    });

    test('is swept away unless it is to be kept', async () => {
      await using bench = await open();
      const [kept, dropped] = [bench.spec(), bench.spec()];
      await bench.driver.start(kept);
      await bench.driver.start(dropped);
      await bench.renewDriver();
      expect(await bench.driver.sweep(new Set([kept.id]))).toEqual([dropped.id]);
      expect(bench.remains(dropped.id)).toEqual([]);
      const machine = await bench.driver.adopt(kept);
      expect((await shellIn(machine!.guest, 'echo kept')).stdout).toBe('kept\n');
    });

    test('is discarded by its id alone, also by a daemon that never reached it; then it starts anew', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const { pid } = await bench.driver.start(spec);
      await bench.renewDriver();
      process.kill(pid, 'SIGSTOP');
      await bench.driver.discard(spec.id);
      expect(bench.remains(spec.id)).toEqual([]);
      await bench.driver.discard(spec.id);
      const machine = await bench.driver.start(spec);
      expect((await shellIn(machine.guest, 'echo anew')).stdout).toBe('anew\n');
    });

    test('sees neither the processes, nor the files, nor the network of another', async () => {
      await using bench = await open();
      const [one, other] = [await bench.start(), await bench.start()];
      await one.guest.startJob({ argv: ['sleep', '98765'] });
      await shellIn(one.guest, 'echo secret > /tmp/secret; echo secret > /dev/shm/secret');
      const seen = await shellIn(other.guest, 'ps -e -o args; ls /tmp /dev/shm');
      expect(seen.stdout).not.toMatch(/98765|secret/);
      const links = (await shellIn(one.guest, 'cat /proc/net/dev')).stdout.match(/^\s*\w+(?=:)/gm);
      expect(links?.map((link) => link.trim())).toEqual(['lo']);
    });

    test('refuses to change the kernel through /proc and /sys', async () => {
      await using bench = await open();
      const { guest } = await bench.start();
      for (const file of [
        '/proc/sys/kernel/core_pattern',
        '/proc/sysrq-trigger',
        '/sys/kernel/uevent_helper',
      ]) {
        expect((await shellIn(guest, `echo x > ${file}`)).code, file).not.toBe(0);
      }
      expect((await shellIn(guest, 'head -c 1 /proc/kcore')).stdout).toBe('');
    });

    test('streams 200 MiB of output without losing a byte', async () => {
      await using bench = await open();
      const { guest } = await bench.start();
      const child = await guest.exec({ argv: ['head', '-c', String(200 * mebibyte), '/dev/zero'] });
      let bytes = 0;
      for await (const { data } of child.output) bytes += data.length;
      expect(bytes).toBe(200 * mebibyte);
      expect(await child.exit).toMatchObject({ code: 0 });
    });

    test('runs a hundred quick programs, one by one and all at once', async () => {
      await using bench = await open();
      const { guest } = await bench.start();
      const echo = async (text: string) => (await runIn(guest, ['echo', text])).stdout;
      for (let index = 0; index < 100; index++) expect(await echo(`${index}`)).toBe(`${index}\n`);
      const all = await Promise.all(Array.from({ length: 100 }, (_, index) => echo(`${index}`)));
      expect(all).toEqual(all.map((_, index) => `${index}\n`));
    });

    test('stands on many layers as on one: each hides what is below it, and what one deletes is gone', async () => {
      await using bench = await open();
      const spec = bench.spec();
      const machine = await bench.driver.start({ ...spec, image: await manyLayers(bench.home, spec.image) });
      const { stdout } = await shellIn(
        machine.guest,
        [
          'cat /stack/all | tail -n 1; ls /stack | wc -l; ls /stack/opaque; cat /stack/opaque/fresh',
          'test ! -e /stack/gone && echo gone; stat -c "%a %u:%g" /stack/open /stack/owned',
          'echo mine > /stack/from-7 && cat /stack/from-7 && rm -r /stack/opaque && mkdir /stack/opaque && ls /stack/opaque',
          'rm /stack/from-3 && test ! -e /stack/from-3 && echo removed',
        ].join('; '),
      );
      expect(stdout.split('\n')).toEqual([
        'layer 126',
        '131',
        'fresh',
        'fresh',
        'gone',
        '1777 0:0',
        '700 1000:1001',
        'mine',
        'removed',
        '',
      ]);
      await machine.stop(0);
    });

    test('starts beside seven others at the same time', async () => {
      await using bench = await open();
      const specs = Array.from({ length: 8 }, () => bench.spec());
      const machines = await Promise.all(specs.map((spec) => bench.driver.start(spec)));
      const names = await Promise.all(
        machines.map(async ({ guest }) => (await shellIn(guest, 'hostname')).stdout),
      );
      expect(names).toEqual(specs.map(({ hostname }) => `${hostname}\n`));
      await Promise.all(machines.map((machine) => machine.stop(0)));
      expect(specs.flatMap(({ id }) => bench.remains(id))).toEqual([]);
    });

    test('is refused when it runs already, and when its spec makes no sense, and leaves nothing', async () => {
      await using bench = await open();
      const spec = bench.spec();
      await bench.driver.start(spec);
      await expect(bench.driver.start(spec)).rejects.toMatchObject({ code: 'wrong_state' });
      const absent = bench.spec({ image: imageRootOf(join(bench.home, 'no-such-image')) });
      await expect(bench.driver.start(absent)).rejects.toMatchObject({ code: 'not_found' });
      expect(bench.remains(absent.id)).toEqual([]);
      for (const changes of [
        { id: '../escape' },
        { hostname: 'two words' },
        { limits: { cpus: 0, memoryBytes: mebibyte, pids: 1 } },
      ]) {
        await expect(bench.start(changes)).rejects.toMatchObject({ code: 'invalid_argument' });
      }
    });
  });
}

/** 127 layers above the image that is given, with names as long as those of a home. */
async function manyLayers(home: string, { directory, layers }: ImageRoot): Promise<ImageRoot> {
  const root = join(home, 'layers');
  const names = Array.from({ length: 127 }, (_, index) => `layer-${String(index).padStart(14, '0')}/fs`);
  for (const [index, name] of names.entries()) {
    mkdirSync(join(root, name, 'stack'), { recursive: true });
    writeFileSync(join(root, name, 'stack/all'), `layer ${index}\n`);
    writeFileSync(join(root, name, `stack/from-${index}`), '');
  }
  const script = `
    mkdir -p ${names[0]}/stack/opaque ${names[0]}/stack/open ${names[0]}/stack/owned ${names[5]}/stack/opaque
    chmod 1777 ${names[0]}/stack/open; chown 1000:1001 ${names[0]}/stack/owned; chmod 700 ${names[0]}/stack/owned
    echo below > ${names[0]}/stack/opaque/below; echo there > ${names[0]}/stack/gone
    mknod ${names[4]}/stack/gone c 0 0
    setfattr -n user.overlay.opaque -v y ${names[5]}/stack/opaque; echo fresh > ${names[5]}/stack/opaque/fresh
    cp --archive "$1" base`;
  await run('sh', ['-euc', script, 'sh', join(directory, layers[0])], { cwd: root });
  const [top = 'base', ...others] = [...names.reverse(), 'base'];
  return { directory: root, layers: [top, ...others] };
}
