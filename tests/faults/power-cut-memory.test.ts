import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { describeWithMemory, RunningDaemon, tinyImage, whereMounts } from '@coppice/testkit';
import { describe, expect, test } from 'vitest';
import { PowerCutDisk } from './power-cut-disk.ts';

const rounds = 3;

/** What had been answered when the power went. */
interface Cut {
  readonly disk: string;
  /** Checkpoints that were on the disk, as everybody had waited for it. */
  readonly old: readonly string[];
  /** Those that had been answered at all. */
  readonly images: readonly string[];
}

describe('a home whose power goes', whereMounts('ext4', 'xfs'), () => {
  describeWithMemory('with the memory', ({ config }) => {
    test('has every image whole, and every checkpoint goes on or is named as lost', async () => {
      const below = mkdtempSync(join(tmpdir(), 'coppice-power-'));
      await using left = new AsyncDisposableStack();
      left.defer(() => rmSync(below, { recursive: true }));
      const disk = await PowerCutDisk.create('ext4', below, 3 * 1024 ** 3);
      left.use(disk);
      const daemon = await RunningDaemon.start({ below: disk.path, config });
      left.defer(async () => expect(await daemon.purge()).toEqual([]));
      const { client } = daemon;

      const source = join(below, 'image');
      cpSync(await tinyImage(), source, { recursive: true, verbatimSymlinks: true });
      const sandbox = await client.sandboxes.create({ name: 's' });
      const job = await sandbox.jobs.start(['sleep', '1000000']);
      const cuts: Cut[] = [];
      const checkpoints: string[] = [];
      const images: string[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const old = [...checkpoints];
        execFileSync('sync', ['--file-system', join(daemon.home, 'pool')]);
        execFileSync('sync', ['--file-system', disk.path]);
        writeFileSync(join(source, 'content'), `${round}\n`.repeat(500_000));
        await client.images.make({ name: `image-${round}`, source });
        images.push(`image-${round}`);
        await sandbox.exec(`head -c 3M /dev/urandom > /root/file-${round}`);
        checkpoints.push((await sandbox.checkpoint()).id);
        // The database may be on the disk sooner than what it tells of, or the other way round.
        if (round % 2 === 0) execFileSync('sync', ['--file-system', disk.path]);
        else await sleep(Math.random() * 2000);
        cuts.push({ disk: await disk.hold(), old, images: [...images] });
      }
      await daemon.kill();
      expect((await daemon.run(['--purge'])).code).toBe(0);

      for (const cut of cuts) {
        await disk.become(cut.disk);
        await daemon.restart();
        const lost = (await client.doctor()).findings.map(({ message }) => message).join('\n');
        const known = (await client.snapshots.list()).filter(({ has_memory: has }) => has);
        for (const id of cut.old) expect(known.map((one) => one.id)).toContain(id);
        for (const { id } of known) {
          const grown = await client.snapshots.fork(id).catch((error: CoppiceError) => error);
          if (lost.includes(id)) {
            expect(cut.old).not.toContain(id);
            expect(grown).toMatchObject({ code: 'corrupt' });
            continue;
          }
          if (grown instanceof CoppiceError) throw grown;
          const fork = grown.sandboxes[0]!;
          expect((await fork.jobs.list()).find((one) => one.id === job.id)).toMatchObject({ running: true });
          await fork.destroy();
        }
        const there = (await client.images.list()).map(({ name }) => name);
        for (const name of cut.images) {
          expect(there).toContain(name);
          const made = await client.sandboxes.create({ image: name, driver: 'container' });
          const { stdout } = await made.exec('wc -c < /content; tail -n 1 /content');
          expect(stdout).toBe(`1000000\n${name.slice(-1)}\n`);
          await made.destroy();
        }
        await daemon.kill();
        expect((await daemon.run(['--purge'])).code).toBe(0);
      }
    });
  });
});
