import { Readable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HostCanary } from './host-canary.ts';

/** A call that loses the race may fail, but only in a way that the API knows. */
const attempt = async <T>(work: Promise<T>): Promise<T | undefined> => {
  try {
    return await work;
  } catch (error) {
    if (error instanceof CoppiceError && error.code !== 'internal' && error.code !== 'unavailable')
      return undefined;
    throw error;
  }
};

describe('the file API, against a sandbox that swaps paths under it,', () => {
  let daemon: RunningDaemon;
  let canary: HostCanary;
  let sandbox: Sandbox;

  beforeAll(async () => {
    canary = new HostCanary();
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'swapper' });
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  /** Runs the work while `place` is now a directory, now a link to the host's directory; then ends the loop. */
  const whileSwapping = async (place: string, work: () => Promise<void>): Promise<void> => {
    // A directory that a call made in between is cleared away, or the swapping would end there.
    const swap = `make() { mkdir -p ${place}.dir; echo inside > ${place}.dir/secret; ln -sfn ${canary.directory} ${place}.link; }
      make; exec 2> /dev/null
      while :; do
        mv -T ${place}.dir ${place} && mv -T ${place} ${place}.dir && mv -T ${place}.link ${place} &&
          mv -T ${place} ${place}.link || { rm -rf ${place}; make; }
      done`;
    const job = await sandbox.jobs.start(swap);
    try {
      await work();
      expect((await sandbox.jobs.get(job.id)).running).toBe(true);
    } finally {
      await sandbox.jobs.kill(job.id, 9);
    }
  };

  test('never reads a file of the host through a directory that becomes a link', async () => {
    await whileSwapping('/root/read', async () => {
      for (let round = 0; round < 100; round += 1) {
        const text = await attempt(sandbox.files.readText('/root/read/secret'));
        if (text !== undefined) expect(text).toBe('inside\n');
        const list = await attempt(sandbox.files.list('/root/read', { depth: 3 }));
        expect(JSON.stringify(list ?? {})).not.toContain('inner');
      }
      for (let round = 0; round < 20; round += 1) {
        const chunks: Uint8Array[] = [];
        await attempt(
          (async () => {
            for await (const chunk of sandbox.files.archive('/root/read')) chunks.push(chunk);
          })(),
        );
        expect(Buffer.concat(chunks).toString('latin1')).not.toContain(canary.secret);
      }
    });
  });

  test('never writes, edits, moves or removes a file of the host through one', async () => {
    await whileSwapping('/root/write', async () => {
      for (let round = 0; round < 40; round += 1) {
        await attempt(sandbox.files.write('/root/write/secret', 'overwritten', { parents: false }));
        await attempt(sandbox.files.write(`/root/write/new-${round}`, 'new', { parents: true }));
        await attempt(sandbox.files.edit('/root/write/secret', 'canary', 'edited'));
        await attempt(sandbox.files.move('/root/write/secret', '/root/write/moved'));
        await attempt(sandbox.files.makeDirectory(`/root/write/made-${round}`));
        await attempt(sandbox.files.remove('/root/write/inner', { recursive: true }));
      }
    });
    expect(canary.damage()).toEqual([]);
  });

  test('unpacks an archive inside, whatever its names and links say', async () => {
    const outward = `../../../../../../..${canary.directory}`;
    const hostile: [string, (tar: ReturnType<typeof pack>) => void][] = [
      ['a name that climbs', (tar) => tar.entry({ name: `${outward}/new` }, 'intruder')],
      ['an absolute name', (tar) => tar.entry({ name: `${canary.directory}/new` }, 'intruder')],
      [
        'a link and then a file behind it',
        (tar) => {
          tar.entry({ name: 'door', type: 'symlink', linkname: canary.directory });
          tar.entry({ name: 'door/new' }, 'intruder');
        },
      ],
      [
        'a hard link to a file outside',
        (tar) => {
          tar.entry({ name: 'twin', type: 'link', linkname: canary.file });
          tar.entry({ name: 'twin' }, 'intruder');
        },
      ],
    ];
    await sandbox.files.makeDirectory('/root/unpacked');
    for (const [what, fill] of hostile) {
      const tar = pack();
      fill(tar);
      tar.finalize();
      await attempt(sandbox.files.unpack('/root/unpacked', Readable.from(tar, { objectMode: false })));
      expect(canary.damage(), what).toEqual([]);
    }
    expect((await sandbox.exec('echo alive')).stdout).toBe('alive\n');
  });

  test('compares and merges disks without following their links out', async () => {
    await using base = await daemon.client.sandboxes.create({ name: 'base' });
    await base.exec('mkdir /root/d && echo one > /root/d/secret');
    const [fork] = (await base.fork({ name: 'branch' })).sandboxes;
    await fork!.exec('echo two > /root/d/secret; echo new > /root/d/new');
    await base.exec(`rm -r /root/d && ln -s ${canary.directory} /root/d && ln -s ${canary.file} /root/file`);
    for (const path of ['/root/d/secret', '/root/file', `/root/d/../..${canary.file}`, `/..${canary.file}`]) {
      const answer = await attempt(daemon.client.diffFile('branch', 'base', path));
      expect(JSON.stringify(answer ?? {}), path).not.toContain(canary.secret);
    }
    // Running, it is written from inside; stopped, its disk is written on the host.
    const undo = (await base.merge(fork!, { prefer: 'theirs' })).undo_snapshot_id!;
    expect(canary.damage()).toEqual([]);
    expect((await base.exec('cat /root/d/secret /root/d/new')).stdout).toBe('two\nnew\n');
    await base.restore(undo);
    await base.stop({ grace_s: 0 });
    await base.merge(fork!, { prefer: 'theirs' });
    expect(canary.damage()).toEqual([]);
    await base.start();
    expect((await base.exec('cat /root/d/secret /root/d/new')).stdout).toBe('two\nnew\n');
    await fork!.destroy();
  });
});
