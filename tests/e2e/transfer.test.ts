import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon, skipFor, treeListing } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { collect, editManifest, streamOf } from './transfer/export-bytes.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));

const run = async (sandbox: Sandbox, command: string): Promise<string> => {
  const { stdout, stderr, exit_code: code } = await sandbox.exec(command);
  if (code !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout.trim();
};

describe('export from one home and import into another', () => {
  let from: RunningDaemon;
  let into: RunningDaemon;
  beforeAll(async () => {
    [from, into] = await Promise.all([
      RunningDaemon.start({ config: { default_driver: 'container' } }),
      RunningDaemon.start({ image: false }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([from[Symbol.asyncDispose](), into[Symbol.asyncDispose]()]);
  });

  const upper = (daemon: RunningDaemon, id: string) => join(daemon.home, 'pool/snapshots', id, 'upper');
  /** Without what overlayfs notes for itself: where a copy came from, and that it keeps one whiteout more for later. */
  const listing = async (daemon: RunningDaemon, id: string): Promise<string> =>
    (await treeListing(upper(daemon, id)))
      .split('\n')
      .filter((line) => !/^user\.overlay\.(origin|impure|uuid|nlink)=|^# file: |^$/.test(line))
      .map((line) => line.replace(/^(\S+ c 0 .*) \d+ 0$/, '$1'))
      .join('\n');
  const spooled = (daemon: RunningDaemon) => readdirSync(join(daemon.home, 'imports'));

  test('files, links, holes, owners, times and what was deleted are the same; the image comes along once', async () => {
    await using source = await from.client.sandboxes.create({
      name: 'source',
      memory_mb: 200,
      labels: { team: 'blue' },
      env: { TOKEN: 'hunter2' },
      network: { allow: ['198.51.100.1'], allow_host_ports: [5432] },
    });
    await run(
      source,
      `cd /root && echo one > plain && ln plain other && ln -s plain link && mkfifo fifo && dd if=/dev/zero of=holes bs=1 count=3 seek=5000000 2>/dev/null &&
       chown 1000:1000 other && chmod 4711 plain && mkdir -p deep/er && rm -rf /usr/bin/cp /home && mkdir /home &&
       touch -d '2001-02-03 04:05:06.123456789' deep && printf odd > "$(printf 'not-utf8-\\377')"`,
    );
    const snapshot = await source.snapshot({ name: 'base', note: 'as shipped', tags: ['release'] });
    const bytes = await collect(from.client.snapshots.export(snapshot.id));

    const first = await into.client.snapshots.import(streamOf(bytes));
    expect(first).toMatchObject({
      name: 'base',
      note: 'as shipped',
      tags: ['release'],
      sandbox_name: 'source',
      image: 'tiny',
      has_memory: false,
      created_at: snapshot.created_at,
      parent_id: null,
      image_added: true,
      memory_left_out: false,
      missing_env: ['TOKEN'],
      host_ports_left_out: [5432],
    });
    expect(await listing(into, first.id)).toBe(await listing(from, snapshot.id));
    await using grown = (await into.client.snapshots.fork(first.id, { env: { TOKEN: 'again' } }))
      .sandboxes[0]!;
    expect(await run(grown, 'cat /root/other; stat -c %h:%a:%u /root/plain; ls /home; echo $TOKEN')).toBe(
      'one\n2:4711:1000\nagain',
    );
    expect(await run(grown, 'ls /usr/bin/cp 2>/dev/null || echo gone')).toBe('gone');
    const detail = await grown.inspect();
    expect([detail.memory_mb, detail.labels, detail.network.allow]).toEqual([
      200,
      { team: 'blue' },
      ['198.51.100.1'],
    ]);
    // What the other machine allowed of itself is no permission here.
    expect(detail.network.allow_host_ports).toEqual([]);
    const nodes = await into.client.lineage();
    expect(nodes.find(({ id }) => id === first.id)?.parent).toBe(
      nodes.find(({ kind }) => kind === 'image')?.id,
    );

    const second = await into.client.snapshots.import(streamOf(bytes), { name: 'again' });
    expect(second).toMatchObject({ name: 'again', image_added: false });
    expect(second.id).not.toBe(first.id);
    expect(await into.client.images.list()).toHaveLength(1);
    await using created = await into.client.sandboxes.create({ from: second.id });
    expect(await run(created, 'cat /root/link')).toBe('one');
    expect(spooled(into)).toEqual([]);
  });

  test('what is imported can be snapshotted, exported again, and comes out as it went in', async () => {
    await using source = await from.client.sandboxes.create();
    await run(source, 'mkdir /srv; echo kept > /srv/file; rm /etc/group');
    const snapshot = await source.snapshot();
    const there = await into.client.snapshots.import(from.client.snapshots.export(snapshot.id));
    const back = await from.client.snapshots.import(into.client.snapshots.export(there.id, { image: false }));
    expect(back.image_added).toBe(false);
    expect(await listing(from, back.id)).toBe(await listing(from, snapshot.id));
    await eventually('its size is counted', async () => {
      const { referenced_bytes: bytes } = await from.client.snapshots.get(back.id);
      return bytes !== null;
    });
    await from.client.snapshots.delete(back.id);
  });

  test('values of the environment travel only when asked to, and secrets are nowhere in the file otherwise', async () => {
    await using source = await from.client.sandboxes.create({ env: { SECRET: 'correct-horse-battery' } });
    const snapshot = await source.snapshot();
    const closed = await into.client.snapshots.import(from.client.snapshots.export(snapshot.id));
    expect(closed.missing_env).toEqual(['SECRET']);
    const open = await into.client.snapshots.import(from.client.snapshots.export(snapshot.id, { env: true }));
    expect(open.missing_env).toEqual([]);
    await using grown = await into.client.sandboxes.create({ from: open.id });
    expect(await run(grown, 'echo $SECRET')).toBe('correct-horse-battery');
    const manifests = await Promise.all(
      [{ env: false }, { env: true }].map(async (options) => {
        const bytes = await collect(from.client.snapshots.export(snapshot.id, { ...options, image: false }));
        let text = '';
        await editManifest(bytes, (manifest) => {
          text = JSON.stringify(manifest);
        });
        return text.includes('correct-horse-battery');
      }),
    );
    expect(manifests).toEqual([false, true]);
  });

  test('without its image a file is refused where the image is not, and says what to do', async () => {
    await using home = await RunningDaemon.start({ image: false });
    await using source = await from.client.sandboxes.create();
    const snapshot = await source.snapshot();
    const bytes = await collect(from.client.snapshots.export(snapshot.id, { image: false }));
    await expect(home.client.snapshots.import(streamOf(bytes))).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringContaining('image tiny (sha256:'),
      hint: expect.stringContaining('--no-image'),
    });
    expect([await home.client.snapshots.list(), home.traces.snapshots(), spooled(home)]).toEqual([
      [],
      [],
      [],
    ]);
  });

  test('an upload that its sender gives up leaves nothing', async () => {
    await using source = await from.client.sandboxes.create();
    await run(source, 'head -c 3000000 /dev/urandom > /root/data');
    const snapshot = await source.snapshot();
    const bytes = await collect(from.client.snapshots.export(snapshot.id));
    const before = into.traces.snapshots();
    async function* half() {
      yield bytes.subarray(0, bytes.length / 2);
      throw new Error('the cable is cut');
    }
    await expect(into.client.snapshots.import(half())).rejects.toThrow('the cable is cut');
    await eventually('the spool is empty', () => spooled(into).length === 0);
    expect(into.traces.snapshots()).toEqual(before);
  });
});

describe('checkpoints', skipFor(hasRunsc ? undefined : 'this machine has no runsc'), () => {
  let from: RunningDaemon;
  let into: RunningDaemon;
  let directory: string;
  let file: string;
  let snapshotId: string;
  let before: number;

  const counted = async (sandbox: Sandbox): Promise<number> => {
    const job = (await sandbox.jobs.list())[0];
    return job?.running ? job.log_bytes : -1;
  };

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'coppice-transfer-'));
    [from, into] = await Promise.all([
      RunningDaemon.start({ config: { default_driver: 'gvisor' } }),
      RunningDaemon.start({ image: false, config: { default_driver: 'gvisor' } }),
    ]);
    const source = await from.client.sandboxes.create({ name: 'counter' });
    await source.jobs.start('i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done');
    await eventually('it counts', async () => (await counted(source)) > 20);
    before = await counted(source);
    const checkpoint = await source.checkpoint({ name: 'live' });
    snapshotId = checkpoint.id;
    await source.destroy();
    file = join(directory, 'live.coppice');
    writeFileSync(file, await collect(from.client.snapshots.export(snapshotId)));
  });
  afterAll(async () => {
    rmSync(directory, { recursive: true, force: true });
    await Promise.all([from[Symbol.asyncDispose](), into[Symbol.asyncDispose]()]);
  });

  test('a process goes on counting in another home, from where it was', async () => {
    const imported = await into.client.snapshots.import(streamOf(readFileSync(file)));
    expect(imported).toMatchObject({ has_memory: true, memory_left_out: false, driver: 'gvisor' });
    expect(imported.memory_bytes).toBeGreaterThan(0);
    expect(statSync(file).size).toBeLessThan(imported.memory_bytes! * 10);
    const { sandboxes } = await into.client.snapshots.fork(imported.id, { name: 'heir' });
    await using heir = sandboxes[0]!;
    expect(await counted(heir)).toBeGreaterThanOrEqual(before);
    const then = await counted(heir);
    await eventually('it counts on', async () => (await counted(heir)) > then);
    expect(await run(heir, 'hostname')).toBe('heir');
  });

  test('memory that needs a feature the processor lacks is refused by its name, and its files are offered and taken', async () => {
    const foreign = await editManifest(readFileSync(file), (manifest) =>
      manifest.memory!.cpu_features.push('quantum'),
    );
    const snapshots = into.traces.snapshots();
    await expect(into.client.snapshots.import(streamOf(foreign))).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('lacks quantum'),
      hint: expect.stringContaining('--disk-only'),
      details: { reason: 'incompatible_memory' },
    });
    expect(into.traces.snapshots()).toEqual(snapshots);
    const taken = await into.client.snapshots.import(streamOf(foreign), { disk_only: true, name: 'files' });
    expect(taken).toMatchObject({ has_memory: false, memory_left_out: true, memory_bytes: null });
    expect(into.traces.memories()).not.toContain(taken.id);
    await using grown = await into.client.sandboxes.create({ from: taken.id });
    expect(await grown.jobs.list()).toEqual([]);
  });

  test('a processor that has more than the memory needs is good enough', async () => {
    const fewer = await editManifest(readFileSync(file), (manifest) => {
      manifest.memory!.cpu_features = manifest.memory!.cpu_features.slice(1);
    });
    const imported = await into.client.snapshots.import(streamOf(fewer));
    const { sandboxes } = await into.client.snapshots.fork(imported.id);
    await using fork = sandboxes[0]!;
    expect(await counted(fork)).toBeGreaterThanOrEqual(before);
  });

  test('a checkpoint that is exported without memory is a snapshot', async () => {
    const imported = await into.client.snapshots.import(
      from.client.snapshots.export(snapshotId, { memory: false }),
    );
    expect(imported).toMatchObject({ has_memory: false, memory_left_out: false });
  });
});
