import { RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';

test('a purge leaves nothing of its home, and another home beside it notices nothing', async () => {
  await using other = await RunningDaemon.start();
  const stays = await other.client.sandboxes.create({ network: { allow: ['198.51.100.1'] } });
  const daemon = await RunningDaemon.start();
  const one = await daemon.client.sandboxes.create({ network: { allow: ['198.51.100.1'] } });
  await one.ports.forward(8080);
  await one.snapshot();
  const { sandboxes } = await one.fork({ count: 2 });
  await sandboxes[0]?.pause({ keep: 'disk' });
  await sandboxes[1]?.stop({ grace_s: 0 });
  const stopped = daemon.traces.all();
  expect(stopped.length).toBeGreaterThan(0);
  expect(await daemon.purge()).toEqual([]);
  expect((await stays.exec('echo here')).stdout).toBe('here\n');
  expect(other.traces.machines()).toEqual([stays.id]);
});

test('a home whose daemon was killed is purged as well, and purging what is not there is no error', async () => {
  const daemon = await RunningDaemon.start();
  await daemon.client.sandboxes.create();
  await daemon.kill();
  expect(await daemon.purge()).toEqual([]);
  expect((await daemon.run(['--purge'])).code).toBe(0);
});
