import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RunMessage } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await RunningDaemon.start({
    config: { run_health: { interval_s: 0.5, cooldown_s: 0, restarts_per_hour: 3, stuck_s: 3600 } },
  });
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

/** Speaks the Agent Client Protocol, writes down what it hears, and ends a turn when it is let. */
const player = `#!/bin/bash
while read -r line; do
  id=; [[ $line =~ '"id":'([0-9]+) ]] && id=\${BASH_REMATCH[1]}
  case $line in
    *'"initialize"'*) result='{"protocolVersion":1,"agentInfo":{"name":"player","version":"1.0"}}' ;;
    *'"session/new"'*) result='{"sessionId":"s1"}' ;;
    *'"session/prompt"'*)
      echo "$line" >> /root/prompts
      until [ -e /root/go ]; do sleep 0.02; done
      rm /root/go
      result='{"stopReason":"end_turn"}' ;;
    *) result='{}' ;;
  esac
  [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
`;

async function begin(name: string) {
  const { runs, sandboxes } = daemon.client;
  const sandbox = await sandboxes.create({ name });
  await sandbox.files.write('/opt/coppice/agents/bin/goose', player, { mode: '755' });
  await runs.start({ name, task: 'the task', agent: 'goose', sandbox: sandbox.id });
  const prompts = async (): Promise<string[]> =>
    (await sandbox.exec('cat /root/prompts')).stdout.split('\n').filter((line) => line !== '');
  const prompted = (count: number) =>
    eventually(`prompt ${count}`, async () => (await prompts()).length === count);
  const letGo = () => sandbox.exec('touch /root/go');
  const message = async (number: number): Promise<RunMessage> =>
    (await runs.messages(name)).find((each) => each.number === number)!;
  await prompted(1);
  return { sandbox, prompts, prompted, letGo, message };
}

describe('messages to an agent that is in its turn', () => {
  test('wait for its end and go by priority, and one whose time is over goes nowhere', async () => {
    const { runs } = daemon.client;
    const { sandbox, prompts, prompted, letGo, message } = await begin('ordered');
    for (const [text, options] of [
      ['unimportant', { priority: 1 }],
      ['important', { priority: 9 }],
      ['fleeting', { priority: 9, expires_in_s: 1 }],
      ['important too', { priority: 9 }],
      ['taken back', { priority: 8 }],
    ] as const)
      await runs.tell('ordered', text, { urgency: 'queue', ...options });
    await runs.withdraw('ordered', (await message(5)).id);
    await eventually('it expires', async () => (await message(3)).state === 'expired');
    expect(await message(3)).toMatchObject({ note: 'its time was over', sent_at: null });
    expect(await prompts()).toHaveLength(1);
    await letGo();
    await prompted(2);
    const [, told] = await prompts();
    const at = ['important\\n', 'important too\\n', 'unimportant\\n'].map((text) =>
      told!.indexOf(`\\n${text}`),
    );
    expect(at.every((place) => place > 0)).toBe(true);
    expect(at).toEqual([...at].sort((a, b) => a - b));
    expect(told).not.toContain('fleeting');
    expect(told).not.toContain('taken back');
    // What the agent has is not taken back by time.
    expect(await message(1)).toMatchObject({ state: 'sent', via: 'prompt' });
    await letGo();
    expect(await runs.wait('ordered')).toMatchObject({ state: 'completed', outcome: 'succeeded' });
    expect(await prompts()).toHaveLength(2);
    await runs.remove('ordered');
    await sandbox.destroy();
  });

  test('survive the death of the sandbox: the agent is started again, and is told each of them once', async () => {
    const { runs, sandboxes } = daemon.client;
    const { sandbox, prompts, letGo, message } = await begin('survives');
    await runs.tell('survives', 'from before', { urgency: 'queue' });
    const record = join(daemon.home, 'run', sandbox.id, 'machine.json');
    process.kill(JSON.parse(readFileSync(record, 'utf8')).init.pid, 'SIGKILL');
    await eventually('it is at work again', async () => {
      const { state, attempt } = await runs.get('survives');
      return state === 'running' && attempt === 2;
    });
    // It went back to its last step: what it wrote down since is gone, and it is told its task again.
    await eventually('it is told', async () => (await prompts())[0]?.includes('from before') === true);
    await letGo();
    expect(await runs.wait('survives')).toMatchObject({ state: 'completed', outcome: 'succeeded' });
    expect((await prompts()).map((line) => line.split('from before').length - 1)).toEqual([1]);
    expect(await message(1)).toMatchObject({ state: 'sent' });
    const { events } = await runs.listEvents('survives');
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    await runs.remove('survives');
    await sandboxes.at('survives').destroy();
  });
});
