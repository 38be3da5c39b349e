import { type IncomingMessage, request } from 'node:http';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

describe('an export that nobody reads on', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create();
    // More than what lies on the way between the two.
    await sandbox.exec('head -c 48000000 /dev/urandom > /root/data');
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** It has begun, and its reader takes no more than the first bytes. */
  const stalled = (snapshotId: string, { token, url: base } = daemon): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const url = `${base}/v1/snapshots/${snapshotId}/export`;
      const call = request(url, { method: 'POST', headers, agent: false }, (response) => {
        response.once('readable', () => resolve(response));
      });
      call.once('error', reject).end('{"image":false}');
    });

  test('keeps its snapshot: a deletion is refused at once and says why, and goes when the reader does', async () => {
    const { id } = await sandbox.snapshot({ name: 'wanted' });
    const reader = await stalled(id);
    await expect(daemon.client.snapshots.delete(id)).rejects.toMatchObject({
      code: 'in_use',
      message: expect.stringMatching(/wanted .* exported/),
    });
    const fork = (await daemon.client.snapshots.fork(id)).sandboxes[0]!;
    expect((await fork.exec('wc -c < /root/data')).stdout.trim()).toBe('48000000');
    await fork.destroy();
    reader.destroy();
    await eventually('it can be deleted', async () => {
      const refusal = await daemon.client.snapshots.delete(id).catch((error: unknown) => error);
      return refusal === undefined;
    });
  });

  test('keeps nobody from destroying what grew from its snapshot, which goes with the reader', async () => {
    const { snapshot_id: snapshotId, sandboxes } = await sandbox.fork();
    const reader = await stalled(snapshotId);
    await sandboxes[0]!.destroy();
    expect((await daemon.client.snapshots.list()).map(({ id }) => id)).toEqual([snapshotId]);
    reader.destroy();
    await eventually('it is gone', async () => (await daemon.client.snapshots.list()).length === 0);
  });

  test('ends after the time that config.json says', async () => {
    await using impatient = await RunningDaemon.start({ config: { limits: { stalled_reader_s: 1 } } });
    await using source = await impatient.client.sandboxes.create();
    await source.exec('head -c 48000000 /dev/urandom > /root/data');
    const { id } = await source.snapshot();
    const reader = await stalled(id, impatient);
    await eventually('it is let go', async () => {
      const refusal = await impatient.client.snapshots.delete(id).catch((error: unknown) => error);
      return refusal === undefined;
    });
    // What was on the way arrives, and then the end is told from a whole file.
    await expect(readToEnd(reader)).rejects.toMatchObject({ code: 'ECONNRESET' });
  });
});

const readToEnd = async (reader: IncomingMessage): Promise<void> => {
  for await (const _ of reader);
};
