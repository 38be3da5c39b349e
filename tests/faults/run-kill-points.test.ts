import type { RunEvent } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { killPoints } from '../../packages/daemon/src/journal/kill-points.ts';

describe('a daemon that is killed while a run goes on', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const ofRuns = killPoints.filter((point) => /^run\.(?!rew)/.test(point));
  test.each(ofRuns)('at %s: the next one goes on, and nothing is done twice or lost', async (point) => {
    const { runs, sandboxes } = daemon.client;
    const name = point.replace('.', '-');
    const command = 'echo started >> /root/starts; for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done';
    daemon.armKillPoint(point);
    await runs.start({ name, task: 'count', command }).catch(() => {});
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();

    const ended = await runs.wait(name);
    expect(ended).toMatchObject({ state: 'completed', outcome: 'succeeded', attempt: 1 });
    expect(ended.transitions.map(({ to }) => to)).toEqual([
      'pending',
      'creating',
      'running',
      'completing',
      'completed',
    ]);
    const { events } = await runs.listEvents(name);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    const said = events.filter(
      (event): event is Extract<RunEvent, { type: 'agent.output' }> => event.type === 'agent.output',
    );
    expect(said.map(({ data }) => data.text.text).join('')).toBe('line 1\nline 2\nline 3\nline 4\nline 5\n');
    for (const type of ['agent.started', 'agent.exited', 'agent.completed'])
      expect(events.filter((event) => event.type === type)).toHaveLength(1);
    const mine = (await sandboxes.list()).filter(({ labels }) => labels['coppice.run'] === ended.id);
    expect(mine).toHaveLength(1);
    expect((await sandboxes.at(ended.sandbox_id!).exec('cat /root/starts')).stdout).toBe('started\n');
    await runs.remove(name);
    await eventually('its sandbox is gone', async () => (await sandboxes.list()).length === 0);
  });

  const ofRewinds = killPoints.filter((point) => point.startsWith('run.rew'));
  test.each(ofRewinds)('at %s: the run is back at its step, and goes on once from there', async (point) => {
    const { runs, sandboxes } = daemon.client;
    const name = point.replace('.', '-');
    await runs.start({ name, task: 'wait', command: 'echo started >> /root/starts; echo here; sleep 600' });
    const outputs = async () =>
      (await runs.listEvents(name)).events.filter(({ type }) => type === 'agent.output').length;
    await eventually('it works', async () => (await outputs()) === 1);
    const inside = sandboxes.at((await runs.get(name)).sandbox_id!);
    await inside.exec('echo later > /root/later');
    daemon.armKillPoint(point);
    await runs.rewind(name, 1, { message: 'again' }).catch(() => {});
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();
    await eventually('it works again', async () => (await outputs()) === 2);
    expect(await runs.get(name)).toMatchObject({ state: 'running', attempt: 2 });
    expect((await inside.exec('cat /root/starts; ls /root')).stdout).toBe('started\nstarts\n');
    expect((await runs.messages(name)).map(({ text }) => text)).toEqual(['again']);
    expect((await runs.listEvents(name)).events.filter(({ type }) => type === 'run.rewound')).toHaveLength(1);
    await runs.stop(name);
    await runs.remove(name);
  });

  /** Speaks the Agent Client Protocol, and writes down each prompt that it gets. */
  const player = `#!/bin/bash
while read -r line; do
  [[ $line =~ '"id":'([0-9]+) ]] && id=\${BASH_REMATCH[1]}
  case $line in
    *'"initialize"'*) result='{"protocolVersion":1,"agentInfo":{"name":"player","version":"1.0"}}' ;;
    *'"session/new"'*) result='{"sessionId":"s1"}' ;;
    *'"session/prompt"'*) echo prompted >> /root/prompts; result='{"stopReason":"end_turn"}' ;;
    *) result='{}' ;;
  esac
  echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
`;
  const ofTalks = killPoints.filter((point) => point.startsWith('talk.'));
  test.each(ofTalks)('at %s: the agent is told its task once, and the run ends', async (point) => {
    const { runs, sandboxes } = daemon.client;
    const name = point.replace('.', '-');
    const sandbox = await sandboxes.create({ name });
    await sandbox.files.write('/opt/coppice/agents/bin/goose', player, { mode: '755' });
    daemon.armKillPoint(point);
    await runs.start({ name, task: 'say nothing', agent: 'goose', sandbox: sandbox.id }).catch(() => {});
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();
    expect(await runs.wait(name)).toMatchObject({ state: 'completed', outcome: 'succeeded', attempt: 1 });
    expect((await sandboxes.at(name).exec('cat /root/prompts')).stdout).toBe('prompted\n');
    await runs.remove(name);
    await sandboxes.at(name).destroy();
  });
});
