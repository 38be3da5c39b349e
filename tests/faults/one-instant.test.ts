import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const wholeBytes = 16 * 4096;
const place = '/root/written';

let writer: Buffer;

beforeAll(() => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-writer-'));
  const program = join(directory, 'safe-writer');
  execFileSync('cc', ['-O1', '-o', program, join(import.meta.dirname, 'safe-writer.c')]);
  writer = readFileSync(program);
  rmSync(directory, { recursive: true });
});

async function write(sandbox: Sandbox): Promise<void> {
  for (const number of [1, 2, 3]) {
    await sandbox.exec(`rm -rf ${place}/${number}; mkdir -p ${place}/${number}`);
    await sandbox.jobs.start(`exec /root/safe-writer ${place}/${number}`);
  }
  await eventually(
    'all have begun',
    async () => (await sandbox.exec(`cat ${place}/*/second`)).stdout.trim().split('\n').length === 3,
  );
}

/** Three programs in it write files aside and rename them, without a pause. */
async function busySandbox(daemon: RunningDaemon): Promise<Sandbox> {
  const sandbox = await daemon.client.sandboxes.create({ name: 'busy', disk_mb: 512 });
  await sandbox.files.write('/root/safe-writer', writer, { mode: '0755' });
  await write(sandbox);
  return sandbox;
}

/** What cannot be at any instant of it. */
function faultsOf(upper: string): string[] {
  const faults: string[] = [];
  for (const number of ['1', '2', '3']) {
    const directory = join(upper, place, number);
    for (const name of readdirSync(directory)) {
      const { size } = statSync(join(directory, name));
      if (name.startsWith('file-') && size !== wholeBytes) faults.push(`${number}/${name} has ${size} bytes`);
    }
    const [first, second] = ['first', 'second'].map((name) =>
      Number(readFileSync(join(directory, name), 'utf8')),
    );
    if (first !== second && first !== second! + 1)
      faults.push(`${number}: ${first} was written before ${second}`);
  }
  return faults;
}

const uppersOf = (daemon: RunningDaemon, id: string): string =>
  join(daemon.home, 'pool/snapshots', id, 'upper');

describe('of a sandbox whose programs write all the time', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await busySandbox(daemon);
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  test('a snapshot holds one instant: whole files, in the order in which they were written', async () => {
    for (let round = 0; round < 15; round += 1) {
      const { id } = await sandbox.snapshot();
      expect(faultsOf(uppersOf(daemon, id))).toEqual([]);
      await daemon.client.snapshots.delete(id);
    }
  });

  test('a comparison with what it is now sees one instant', async () => {
    const { id } = await sandbox.snapshot();
    for (let round = 0; round < 40; round += 1) {
      const { changes } = await daemon.client.diff(id, 'busy');
      const torn = changes.filter(
        ({ path, size_after: size }) => /\/file-\d+$/.test(path) && size !== null && size !== wholeBytes,
      );
      expect(torn).toEqual([]);
    }
    await daemon.client.snapshots.delete(id);
  });

  test('a fork begins with one instant', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { sandboxes } = await sandbox.fork({ count: 2 });
      expect(sandboxes).toHaveLength(2);
      for (const fork of sandboxes) {
        expect(faultsOf(join(daemon.home, 'pool/disks', fork.id, 'upper'))).toEqual([]);
        await fork.destroy();
      }
    }
  });

  test('what a restore keeps to undo it is one instant', async () => {
    const { id } = await sandbox.snapshot();
    for (let round = 0; round < 5; round += 1) {
      const { undo_snapshot_id: undo } = await sandbox.restore(id);
      expect(faultsOf(uppersOf(daemon, undo!))).toEqual([]);
      await write(sandbox);
    }
  });
});

describeWithMemory('of a sandbox whose programs write all the time', ({ config }) => {
  test('a checkpoint holds files of one instant, and its memory goes on from there', async () => {
    await using daemon = await RunningDaemon.start({ config });
    const sandbox = await busySandbox(daemon);
    for (let round = 0; round < 3; round += 1) {
      const { id } = await sandbox.snapshot({ memory: true });
      expect(faultsOf(uppersOf(daemon, id))).toEqual([]);
      await sandbox.restore(id);
      const before = Number((await sandbox.exec(`cat ${place}/1/second`)).stdout);
      await eventually(
        'it writes on',
        async () => Number((await sandbox.exec(`cat ${place}/1/second`)).stdout) > before,
      );
    }
  });
});
