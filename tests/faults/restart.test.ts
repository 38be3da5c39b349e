import { execFileSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`);

describe('a daemon that goes and comes back', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let counter: number;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'steady', env: { KEPT: 'yes' } });
    counter = (await sandbox.jobs.start('while :; do echo tick; sleep 0.01; done')).id;
  });
  afterEach(() => daemon.disarm());
  afterAll(() => daemon[Symbol.asyncDispose]());

  async function counted(): Promise<number> {
    const found = (await sandbox.jobs.list()).find(({ id }) => id === counter);
    return found?.running ? found.log_bytes : -1;
  }

  const initOf = (id: string): number =>
    JSON.parse(readFileSync(join(daemon.home, 'run', id, 'machine.json'), 'utf8')).init.pid;

  test.each(['SIGTERM', 'SIGKILL'] as const)(
    'by %s finds its sandboxes running, as they were',
    async (signal) => {
      const before = await counted();
      await daemon.kill(signal);
      expect(isAlive(initOf(sandbox.id))).toBe(true);
      await daemon.restart();
      expect(await counted()).toBeGreaterThanOrEqual(before);
      await eventually('it counts on', async () => (await counted()) > before);
      expect((await sandbox.exec('echo $KEPT')).stdout).toBe('yes\n');
    },
  );

  test('what is taken while a new daemon still sweeps is not swept', async () => {
    await daemon.kill('SIGKILL');
    daemon.holdAt('recovery.sweeping', 'snapshot.thawed');
    await daemon.restart();
    const taking = sandbox.snapshot();
    const onPool = () => daemon.traces.snapshots();
    await eventually('it is on the pool, and in no table yet', () => onPool().length === 1);
    expect(await sandbox.snapshots()).toEqual([]);
    daemon.holdAt('snapshot.thawed');
    // Made when all is swept.
    await using made = await daemon.client.sandboxes.create();
    daemon.disarm();
    const { id } = await taking;
    expect(onPool()).toEqual([id]);
    await daemon.client.snapshots.delete(id);
    expect((await made.exec('echo made')).stdout).toBe('made\n');
  });

  test('a snapshot that a new daemon still restores from can be deleted only afterwards', async () => {
    await using restored = await daemon.client.sandboxes.create();
    await restored.files.write('/root/file', 'old');
    const { id } = await restored.snapshot();
    await restored.files.write('/root/file', 'new');
    daemon.armKillPoint('restore.machine-stopped');
    await restored.restore(id).catch(() => {});
    await daemon.exited;
    // What was restored goes on when all is swept.
    daemon.holdAt('recovery.sweeping');
    await daemon.restart();
    await expect(daemon.client.snapshots.delete(id)).rejects.toMatchObject({ code: 'in_use' });
    expect((await daemon.client.snapshots.list()).map((one) => one.id)).toContain(id);
    daemon.disarm();
    expect((await restored.inspect()).state).toBe('running');
    expect(await restored.files.readText('/root/file')).toBe('old');
    await eventually('the snapshot can be deleted', () =>
      daemon.client.snapshots.delete(id).then(
        () => true,
        () => false,
      ),
    );
  });

  test('an agent that nothing runs and no memory is of is gone with the next daemon', async () => {
    const directory = join(daemon.home, 'pool/agents');
    const before = readdirSync(directory);
    const outdated = ['0123456789abcdef', `${before[0]}.1`];
    for (const name of outdated) writeFileSync(join(directory, name), 'of an earlier version');
    await daemon.restart();
    expect(readdirSync(directory)).toEqual(before);
    expect(await counted()).toBeGreaterThan(0);
  });

  test('what cannot be swept keeps nobody from making sandboxes', async () => {
    await daemon.kill('SIGKILL');
    const stuck = join(daemon.home, 'run', 'sb_stuck', 'mount');
    mkdirSync(stuck, { recursive: true });
    execFileSync('mount', ['-t', 'tmpfs', 'none', stuck]);
    try {
      await daemon.restart();
      await using made = await daemon.client.sandboxes.create();
      expect((await made.exec('echo made')).stdout).toBe('made\n');
    } finally {
      execFileSync('umount', [stuck]);
    }
  });

  test('a second daemon for the same home is refused, and the first goes on', async () => {
    const { code, stderr } = await daemon.run([]);
    expect(code).toBe(7);
    expect(stderr).toContain('already runs');
    expect((await daemon.client.health()).status).toBe('ok');
  });

  test('a forward listens again, on the same port', async () => {
    const { host_port: port } = await sandbox.ports.forward(8080);
    await daemon.kill();
    await daemon.restart();
    const connects = () =>
      new Promise<boolean>((resolve) => {
        const socket = createConnection(port, '127.0.0.1', () => resolve(true)).on('error', () =>
          resolve(false),
        );
        socket.on('connect', () => socket.destroy());
      });
    await eventually('the port is open again', connects);
    expect((await sandbox.ports.list()).map(({ host_port: found }) => found)).toEqual([port]);
    await sandbox.ports.remove(8080);
  });

  test('events go on from any sequence number without a gap', async () => {
    const { last_seq: middle } = await daemon.client.events.list();
    await sandbox.update({ labels: { step: '1' } });
    await daemon.kill();
    await daemon.restart();
    await sandbox.update({ labels: { step: '2' } });
    const abort = new AbortController();
    const seqs: number[] = [];
    for await (const event of daemon.client.events.stream({ after: middle, signal: abort.signal })) {
      seqs.push(event.seq);
      if (seqs.length === 2) break;
    }
    abort.abort();
    expect(seqs).toEqual([middle + 1, middle + 2]);
  });

  test('a sandbox that ended while no daemon looked has failed, and says so', async () => {
    const mortal = await daemon.client.sandboxes.create({ name: 'mortal' });
    const init = initOf(mortal.id);
    await daemon.kill();
    process.kill(init, 'SIGKILL');
    await eventually('it is gone', () => !isAlive(init));
    await daemon.restart();
    const { state, failure } = await mortal.inspect();
    expect({ state, failure }).toEqual({
      state: 'failed',
      failure: 'it ended while no daemon was there to see it',
    });
    await mortal.destroy();
  });

  test('a damaged database is refused with the way back, sandboxes run on, and the way back works', async () => {
    const before = await counted();
    await daemon.stop();
    const database = join(daemon.home, 'coppice.db');
    const pages = Math.floor(statSync(database).size / 4096);
    const file = openSync(database, 'r+');
    for (let page = 1; page < pages; page += 1)
      writeSync(file, Buffer.alloc(4096, 0x5a), 0, 4096, page * 4096);
    closeSync(file);
    const { code, stderr } = await daemon.run([]);
    expect(code).toBe(71);
    expect(stderr).toContain('damaged');
    expect(stderr).toContain('--restore-backup');
    expect(isAlive(initOf(sandbox.id))).toBe(true);
    await daemon.restart({ args: ['--restore-backup'] });
    await eventually('it counts on', async () => (await counted()) > before);
  });

  test('a configuration that cannot be understood is refused by the name of what is wrong', async () => {
    const config = join(daemon.home, 'config.json');
    const good = readFileSync(config, 'utf8');
    await daemon.stop();
    writeFileSync(config, JSON.stringify({ ...JSON.parse(good), memroy: 1 }));
    const { code, stderr } = await daemon.run([]);
    expect(code).toBe(2);
    expect(stderr).toContain('memroy');
    truncateSync(config);
    expect((await daemon.run([])).code).toBe(2);
    writeFileSync(config, good);
    await daemon.restart();
    expect(await counted()).toBeGreaterThan(0);
  });
});
