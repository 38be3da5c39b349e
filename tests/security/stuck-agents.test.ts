import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';

/** A sandbox that has taken over its agent can do the same. */
function holdAgent(daemon: RunningDaemon, { id }: Sandbox): void {
  const record = JSON.parse(readFileSync(join(daemon.home, 'run', id, 'machine.json'), 'utf8'));
  process.kill(record.init.pid, 'SIGSTOP');
}

test('an agent that answers nothing holds up neither the idle and lifetime limits of others nor the end of the daemon', async () => {
  await using daemon = await RunningDaemon.start();
  const stuck = await daemon.client.sandboxes.create({ idle_timeout_s: 1, idle_action: 'stop' });
  holdAgent(daemon, stuck);
  const idle = await daemon.client.sandboxes.create({ idle_timeout_s: 1, idle_action: 'stop' });
  const old = await daemon.client.sandboxes.create({ max_lifetime_s: 1 });
  await eventually('the idle one sleeps', async () => (await idle.inspect()).state === 'stopped');
  await eventually('the old one is gone', async () => {
    const { id } = old;
    return !(await daemon.client.sandboxes.list()).some((sandbox) => sandbox.id === id);
  });
  await daemon.restart();
  await eventually('the one that answers nothing sleeps too', async () => {
    const { state } = await stuck.inspect();
    return state === 'stopped' || state === 'failed';
  });
  expect((await daemon.client.sandboxes.list()).length).toBe(2);
});
