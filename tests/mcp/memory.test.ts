import { existsSync } from 'node:fs';
import { RunningDaemon, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from './agent.ts';

const hasGvisor = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));

describe('memory over MCP', skipFor(hasGvisor ? undefined : 'this machine has no runsc'), () => {
  let daemon: RunningDaemon;
  let agent: Agent;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { default_driver: 'gvisor' } });
    agent = await Agent.overHttp(daemon);
  });
  afterAll(async () => {
    await agent?.client.close();
    await daemon?.[Symbol.asyncDispose]();
  });

  /** The last number that the job wrote; both the counter and its log are in memory alone. */
  const counted = async (workspace: string, job: number): Promise<number> => {
    const poll = await agent.ok<{ running: boolean; stdout: string }>('exec_poll', {
      workspace_id: workspace,
      job_id: job,
    });
    return poll.running ? Number(poll.stdout.trim().split('\n').at(-1)) : -1;
  };
  const countsOn = async (workspace: string, job: number): Promise<void> => {
    const before = await counted(workspace, job);
    expect(before).toBeGreaterThan(0);
    await expect.poll(() => counted(workspace, job), { timeout: 60_000 }).toBeGreaterThan(before);
  };

  test('a snapshot with memory is restored and forked with its processes at work', async ({ task }) => {
    // Another name at each try, as what an earlier one left keeps its own.
    const name = `counter-${task.result?.retryCount ?? 0}`;
    await agent.ok('workspace_create', { name });
    const { job_id: job } = await agent.ok<{ job_id: number }>('exec_background', {
      workspace_id: name,
      command: 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done',
    });
    await expect.poll(() => counted(name, job), { timeout: 60_000 }).toBeGreaterThan(0);
    expect(
      await agent.ok('snapshot_create', { workspace_id: name, name: 'at-work', include_memory: true }),
    ).toMatchObject({ name: 'at-work', has_memory: true });
    await countsOn(name, job);
    expect(await agent.ok('workspace_info', { workspace_id: name })).toMatchObject({
      snapshots: [{ name: 'at-work', has_memory: true }],
    });

    const fork = await agent.ok<{ workspace_id: string }>('workspace_fork', {
      workspace_id: name,
      snapshot_name: 'at-work',
      new_name: `${name}-fork`,
    });
    await countsOn(fork.workspace_id, job);

    await agent.ok('exec_kill', { workspace_id: name, job_id: job });
    await expect.poll(() => counted(name, job), { timeout: 60_000 }).toBe(-1);
    expect(
      await agent.ok('snapshot_restore', { workspace_id: name, snapshot_name: 'at-work' }),
    ).toMatchObject({ with_memory: true, state: 'running' });
    await countsOn(name, job);
    for (const id of [fork.workspace_id, name]) await agent.ok('workspace_destroy', { workspace_id: id });
  });
});

test('where memory cannot be kept the error says what to call instead, and no snapshot is left', async () => {
  await using daemon = await RunningDaemon.start();
  await using agent = await Agent.overHttp(daemon);
  await agent.ok('workspace_create', { name: 'plain' });
  const snapshot = { workspace_id: 'plain', name: 'with-memory' };
  expect(await agent.refused('snapshot_create', { ...snapshot, include_memory: true })).toMatch(
    /unsupported.*\nNext: .*include_memory: false/,
  );
  expect(await agent.ok('snapshot_list', { workspace_id: 'plain' })).toEqual({ snapshots: [] });
  expect(await agent.ok('snapshot_create', snapshot)).toMatchObject({ has_memory: false });
});
