import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Coppice } from '@coppice/sdk';
import { eventually, MountedFilesystem, RunningDaemon, skipFor, whyNotMountable } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HostCanary } from './host-canary.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
const drivers = ['container', ...(hasRunsc ? (['gvisor'] as const) : [])] as const;
const nobody = 65_534;

/** What is held where disks are plain directories of the home's own filesystem, with no pool around them. */
describe.each([
  { engine: 'copy', filesystem: 'ext4' },
  { engine: 'reflink', filesystem: 'xfs' },
] as const)(
  'a hostile sandbox on the engine $engine',
  skipFor(whyNotMountable('ext4') ?? whyNotMountable('xfs')),
  ({ engine, filesystem }) => {
    let directory: string;
    let mounted: MountedFilesystem;
    let daemon: RunningDaemon;
    let canary: HostCanary;

    beforeAll(async () => {
      canary = new HostCanary('/var/tmp');
      directory = await mkdtemp(join(tmpdir(), 'coppice-plain-'));
      mounted = await MountedFilesystem.create(filesystem, directory, 1024 ** 3);
      const limits = { snapshot_space_per_sandbox: 1 };
      daemon = await RunningDaemon.start({
        below: mounted.path,
        config: { disks: { engine }, limits, defaults: { disk_mb: 16, memory_mb: 64 } },
      });
    });
    afterAll(async () => {
      await daemon?.[Symbol.asyncDispose]();
      await mounted?.[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
      canary?.[Symbol.dispose]();
    });

    test('leads nothing that grows from it to the host through links at the places of mounts', async () => {
      await using source = await daemon.client.sandboxes.create({ driver: 'container' });
      const target = canary.directory;
      await source.exec(
        `mkdir -p ${target} && rm -r /tmp && ln -s ${target} /tmp && ln -sfn ${target} /workspace`,
      );
      const snapshot = await source.snapshot();
      for (const driver of drivers) {
        await using grown = await daemon.client.sandboxes.create({ from: snapshot.id, driver });
        const { stdout } = await grown.exec(
          'for d in /tmp /run /workspace /dev/shm; do cat $d/secret; echo x > $d/planted; done',
        );
        expect(stdout, driver).not.toContain(canary.secret);
        expect(canary.damage(), driver).toEqual([]);
      }
    });

    test('gets no program that runs as root for an account of the host', async () => {
      await using sandbox = await daemon.client.sandboxes.create();
      expect((await sandbox.exec('cp /bin/cat /root/evil && chmod 6755 /root/evil')).exit_code).toBe(0);
      const found = execFileSync('find', [daemon.home, '-name', 'evil', '-type', 'f'], { encoding: 'utf8' });
      const [path] = found.trim().split('\n');
      expect(statSync(path!).mode & 0o6000).toBe(0o6000);
      const ran = spawnSync(path!, ['/dev/null'], { uid: nobody, gid: nobody });
      expect((ran.error as NodeJS.ErrnoException | undefined)?.code).toBe('EACCES');
      // The way there is closed above it, whatever the disk says about itself.
      let above = dirname(path!);
      while ((statSync(above).mode & 0o007) !== 0) above = dirname(above);
      expect(above.startsWith(join(daemon.home, 'pool')) || above === daemon.home).toBe(true);
    });

    test('keeps no more with its own token than its snapshots may hold, as copies count in full', async () => {
      await using admin = await daemon.client.sandboxes.create();
      using visitor = new Coppice({ url: daemon.url, token: admin.token! }, {});
      const own = visitor.sandboxes.at(admin.id);
      let refused: unknown;
      for (let round = 0; round < 15 && refused === undefined; round += 1) {
        await own.exec('head -c 12M /dev/urandom > /root/data');
        refused = await own.snapshot().then(
          () => undefined,
          (error: unknown) => error,
        );
      }
      expect(refused).toMatchObject({
        code: 'limit_reached',
        details: { limit: 'snapshot_space_per_sandbox' },
      });
      for (const { id } of await admin.snapshots()) await daemon.client.snapshots.delete(id);
    });

    test('fills the disk of the home, as no size is held, and the daemon says so, goes on and recovers', async () => {
      const sandbox = await daemon.client.sandboxes.create();
      const filled = await sandbox.exec('cat /dev/zero > /root/all; echo "$?"; rm -f /root/some; echo still');
      expect(filled.stdout).toMatch(/^1\nstill\n$/);
      await eventually('health says it', async () => {
        const { status, problems } = await daemon.client.health();
        return status === 'degraded' && problems.includes('disk space');
      });
      await expect(daemon.client.sandboxes.create()).rejects.toMatchObject({ code: 'no_space' });
      await expect(sandbox.snapshot()).rejects.toMatchObject({ code: 'no_space' });
      await daemon.restart();
      await sandbox.destroy();
      await eventually('it is well', async () => (await daemon.client.health()).status === 'ok');
      await using next = await daemon.client.sandboxes.create();
      expect((await next.exec('echo well')).stdout).toBe('well\n');
    });
  },
);
