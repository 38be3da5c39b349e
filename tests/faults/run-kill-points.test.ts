import type { RunEvent } from '@coppice/protocol';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
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

  const ofRaces = killPoints.filter((point) => point.startsWith('race.'));
  test.each(ofRaces)('at %s: each fork of the race is made once, and the best is merged', async (point) => {
    const { runs, sandboxes } = daemon.client;
    const name = point.replace('.', '-');
    const run = await runs.start({ name, task: 'make', command: 'echo made >> /root/made' });
    await runs.wait(name);
    await sandboxes.at((await runs.get(name)).sandbox_id!).exec('rm /root/made');
    daemon.armKillPoint(point);
    await runs.race(name, { n: 2, from: 1, judge: 'test "$(cat /root/made)" = made' }).catch(() => {});
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();
    const race = await runs.waitForRace(name, 1);
    expect(race).toMatchObject({
      state: 'done',
      merged: true,
      entries: [
        { exit_code: 0, outcome: 'succeeded' },
        { exit_code: 0, outcome: 'succeeded' },
      ],
    });
    const forks = (await runs.list()).filter(({ parent }) => parent?.run_id === run.id);
    expect(forks.map(({ id }) => id).sort()).toEqual(race.entries.map(({ run_id }) => run_id).sort());
    const { sandbox_id } = await runs.get(name);
    expect((await sandboxes.at(sandbox_id!).exec('cat /root/made')).stdout).toBe('made\n');
    for (const { id } of forks) await runs.remove(id);
    await runs.remove(name);
    await eventually('its sandboxes are gone', async () => (await sandboxes.list()).length === 0);
  });
});

describeWithMemory('a daemon that is killed while it pauses a run, in a sandbox', (driver) => {
  const ofPauses = killPoints.filter((point) => point.startsWith('run-pause.'));
  test.each(ofPauses)(
    'at %s: the run is paused, says so once, and goes on when it is resumed',
    async (point) => {
      await using daemon = await RunningDaemon.start({ config: driver.config });
      const { runs, sandboxes } = daemon.client;
      const command = 'i=0; while :; do i=$((i + 1)); echo $i > /workspace/count; sleep 0.05; done';
      await runs.start({ name: 'counts', task: 'count', command });
      await eventually('it works', async () => (await runs.get('counts')).state === 'running');
      const { sandbox_id } = await runs.get('counts');
      const inside = sandboxes.at(sandbox_id!);
      daemon.armKillPoint(point);
      await runs.pause('counts').catch(() => {});
      expect((await daemon.exited).signal).toBe('SIGKILL');
      daemon.disarm();
      await daemon.restart();
      const paused = async () =>
        (await runs.listEvents('counts')).events.filter(({ type }) => type === 'run.paused').length;
      await eventually('it is paused', async () => (await paused()) > 0);
      expect(await runs.get('counts')).toMatchObject({ state: 'running', paused: true, attempt: 1 });
      expect((await inside.inspect()).state).toBe('paused');
      await runs.resume('counts');
      const count = async () => Number((await inside.exec('cat /workspace/count')).stdout);
      const before = await count();
      await eventually('it goes on', async () => (await count()) > before);
      expect(await paused()).toBe(1);
      await runs.stop('counts');
      await runs.remove('counts');
    },
  );
});
