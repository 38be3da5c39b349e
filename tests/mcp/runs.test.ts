import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Agent, textOf } from './agent.ts';

let daemon: RunningDaemon;
let agent: Agent;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
  agent = await Agent.overHttp(daemon, { select: { toolsets: 'runs' } });
});
afterAll(async () => {
  await agent?.client.close();
  await daemon?.[Symbol.asyncDispose]();
});

interface Shown {
  readonly state: string;
  readonly last_step: number;
  readonly waiting_messages: number;
  readonly steps: readonly { number: number }[];
  readonly happened: readonly string[];
  readonly next: number | null;
}
const show = (run: string, after = 0) => agent.ok<Shown>('run_show', { run, after });

test('an agent starts another one, watches it, tells it things, takes it back, forks it and hears what came of it', async () => {
  const command =
    'coppice-agent event agent.message text="at work: $(coppice-agent inbox)" > /dev/null; sleep 600';
  const started = await agent.ok('run_start', { name: 'mine', task: 'work', agent: 'command', command });
  expect(started).toMatchObject({ name: 'mine', outcome: null });
  await eventually('it works', async () =>
    (await show('mine')).happened.some((line) => line.includes('at work')),
  );
  expect(await agent.ok('run_list', {})).toMatchObject({
    runs: [{ name: 'mine', state: 'running', task: 'work' }],
  });

  expect(await agent.ok('run_tell', { run: 'mine', text: 'hurry' })).toMatchObject({
    number: 1,
    state: 'accepted',
  });
  expect(await show('mine')).toMatchObject({ waiting_messages: 1, steps: [{ number: 1 }] });
  const early = await agent.call('run_result', { run: 'mine' });
  expect(early.isError).toBe(true);
  expect(textOf(early)).toContain('run_show');

  await agent.ok('run_rewind', { run: 'mine', step: 1, message: 'again' });
  await eventually('it is told', async () =>
    (await show('mine')).happened.some((line) => line.includes('again')),
  );
  const forked = await agent.ok<{ name: string }>('run_fork', { run: 'mine', step: 1, name: 'other' });
  expect(forked.name).toBe('other');
  for (const run of ['mine', 'other']) {
    const stopped = await agent.ok('run_interrupt', { run, stop: true, reason: 'enough' });
    expect(stopped).toMatchObject({ state: 'completed', outcome: 'cancelled' });
    expect(await agent.ok('run_result', { run })).toMatchObject({ outcome: 'cancelled', reason: 'enough' });
  }
  const late = await agent.call('run_tell', { run: 'mine', text: 'too late' });
  expect(textOf(late)).toContain('run_rewind');
  const nobody = await agent.call('run_show', { run: 'nobody' });
  expect(textOf(nobody)).toContain('run_list');
  for (const run of ['other', 'mine']) await daemon.client.runs.remove(run);
});

test('what an agent did is read page by page, and costs a bounded number of tokens', async () => {
  const command =
    'for i in $(seq 90); do coppice-agent event agent.message text="$i $(head -c 3000 /dev/zero | tr "\\0" x)"; done > /dev/null';
  await agent.ok('run_start', { name: 'loud', task: 'talk', agent: 'command', command });
  await daemon.client.runs.wait('loud');
  const seen: string[] = [];
  for (let after: number | null = 0; after !== null; ) {
    const page: Shown = await show('loud', after);
    expect(JSON.stringify(page).length).toBeLessThan(40_000);
    seen.push(...page.happened);
    after = page.next;
  }
  const said = seen
    .filter((line) => line.includes('agent.message'))
    .map((line) => /"text":"(\d+) x/.exec(line)?.[1]);
  expect(said).toEqual(Array.from({ length: 90 }, (_, index) => String(index + 1)));
  await daemon.client.runs.remove('loud');
});
