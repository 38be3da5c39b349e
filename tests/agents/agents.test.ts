import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Run, RunEvent } from '@coppice/protocol';
import { agentImage, eventually, missingAgents, RunningDaemon, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inMemoryOf } from './memory-of.ts';
import { ModelStage } from './model-stage.ts';
import { contents, realAgents } from './real-agents.ts';

const key = 'sk-real-key-of-the-operator-7f3a91';
const hint = 'take the other way';

let daemon: RunningDaemon;
let stage: ModelStage;
const missing = missingAgents();
const suite = skipFor(missing);

beforeAll(async () => {
  if (missing !== undefined) return;
  stage = new ModelStage();
  const url = await stage.listen();
  // What dies is started again at once, as often as these tests want; what is slow on a busy machine is not.
  const run_health = {
    interval_s: 2,
    degraded_after: 100,
    failed_after: 100,
    cooldown_s: 0,
    restarts_per_hour: 100,
  };
  daemon = await RunningDaemon.start({ image: false, config: { run_health, default_image: 'agents' } });
  const upstreams = [
    { name: 'one', kind: 'anthropic', url, secret: 'vendor' },
    { name: 'two', kind: 'openai', url, secret: 'vendor' },
  ];
  writeFileSync(join(daemon.home, 'models.json'), JSON.stringify({ unknown_models: 'count', upstreams }));
  await daemon.client.secrets.set('vendor', key);
  await daemon.client.images.make({ name: 'agents', source: await agentImage(contents) });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await stage?.[Symbol.asyncDispose]();
});

const eventsOf = async (run: string): Promise<RunEvent[]> =>
  (await daemon.client.runs.listEvents(run, { limit: 5000 })).events;
const isState = (run: string, state: Run['state']) =>
  eventually(`${run} is ${state}`, async () => (await daemon.client.runs.get(run)).state === state);
const happens = (run: string, type: RunEvent['type'], count = 1) =>
  eventually(
    `${type} happens`,
    async () => (await eventsOf(run)).filter((event) => event.type === type).length >= count,
  );
const isDelivered = (run: string) =>
  eventually('the message is delivered', async () =>
    (await daemon.client.runs.messages(run)).every(({ state }) => state === 'delivered'),
  );
/** In each request that has it, a message stands once: an agent that was told twice has it twice. */
const toldOnce = (model: string, id: string): boolean => {
  const counts = stage.asked
    .filter((asked) => asked.model === model)
    .map(({ body }) => body.split(id).length - 1);
  return counts.some((count) => count === 1) && counts.every((count) => count <= 1);
};
const inside = (run: Run, command: string) =>
  daemon.client.sandboxes.at(run.sandbox_id!).exec(command, { timeout_ms: 60_000 });
const end = async (...runs: string[]) => {
  for (const run of runs) {
    await daemon.client.runs.stop(run);
    await daemon.client.runs.remove(run);
  }
};

describe.each(['container', 'gvisor'] as const)('in a sandbox of %s', suite, (driver) => {
  describe.each(realAgents)('$name', ({ name, tool }) => {
    const model = (scene: string) => `gpt-${scene}-${name}-${driver}`;
    const start = async (scene: string): Promise<Run> => {
      const { id } = await daemon.client.runs.start({
        task: `play ${scene}`,
        agent: name,
        model: model(scene),
        driver,
      });
      await eventually('it works', async () => (await daemon.client.runs.get(id)).state !== 'creating');
      return daemon.client.runs.get(id);
    };

    test('runs tools, and goes back to a step or on from it in a fork', async () => {
      stage.play(model('work'), ({ body }) =>
        body.includes(hint)
          ? { steps: [{ text: 'I go the other way.' }] }
          : {
              by: 'tool-results',
              steps: [
                { text: 'I begin.', tools: [tool('echo one > /workspace/one; echo made')] },
                {
                  text: 'I go on.',
                  tools: [tool(`until [ -e /tmp/go ]; do sleep 0.05; done; echo two > /workspace/two`)],
                },
                { text: 'All is done.' },
              ],
            },
      );
      const run = await start('work');
      // The step after the first tool is there before the second one does anything.
      await happens(run.id, 'run.step', 2);
      await inside(run, 'touch /tmp/go');
      await isState(run.id, 'completed');
      expect(await daemon.client.runs.result(run.id)).toMatchObject({
        outcome: 'succeeded',
        text: expect.stringContaining('All is done.'),
      });
      const events = await eventsOf(run.id);
      const types = events.map(({ type }) => type);
      expect(events.find((event) => event.type === 'agent.tool_result')?.data.output.text).toContain('made');
      expect(types.filter((type) => type === 'agent.tool_use')).toHaveLength(2);
      expect(types.filter((type) => type === 'agent.tool_result')).toHaveLength(2);
      expect(types.filter((type) => type === 'usage.call').length).toBeGreaterThanOrEqual(3);
      expect((await inside(run, 'cat /workspace/one /workspace/two')).stdout).toBe('one\ntwo\n');

      const first = (await daemon.client.runs.steps(run.id)).find(({ kind }) => kind === 'tool')!;
      const fork = await daemon.client.runs.fork(run.id, { from: first.number, message: hint });
      await isState(fork.id, 'completed');
      const forked = await daemon.client.runs.get(fork.id);
      expect((await inside(forked, 'ls /workspace')).stdout).toContain('one\n');
      expect(await daemon.client.runs.result(fork.id)).toMatchObject({
        text: expect.stringContaining('I go the other way.'),
      });

      const before = stage.asked.length;
      await daemon.client.runs.rewind(run.id, first.number, { message: hint });
      await happens(run.id, 'run.rewound');
      await isState(run.id, 'completed');
      expect((await inside(run, 'ls /workspace')).stdout).not.toContain('two');
      const since = stage.asked.slice(before).filter((asked) => asked.model === model('work'));
      expect(since.at(-1)!.body).toContain('play work');
      expect(since.at(-1)!.body).not.toContain('All is done.');
      await end(run.id, fork.id);
    });

    test('is told something in the middle of its work, once', async () => {
      stage.play(model('slow'), ({ body }) =>
        body.includes(hint)
          ? { steps: [{ text: 'I was told.' }] }
          : { steps: [{ text: 'On and on.', tools: [tool('sleep 0.4; echo again')] }] },
      );
      const run = await start('slow');
      await happens(run.id, 'agent.tool_use');
      const { id } = await daemon.client.runs.tell(run.id, hint, { urgency: 'steer' });
      await isDelivered(run.id);
      await isState(run.id, 'completed');
      expect(toldOnce(model('slow'), id)).toBe(true);
      expect(await daemon.client.runs.get(run.id)).toMatchObject({ turn: 1 });
      expect((await eventsOf(run.id)).some(({ type }) => type === 'agent.interrupted')).toBe(false);
      await end(run.id);
    });

    test('is reached while a tool goes on for ever, interrupted, and nothing of the tool is left', async () => {
      stage.play(model('endless'), ({ body }) =>
        body.includes(hint)
          ? { steps: [{ text: 'I was told.' }] }
          : { steps: [{ text: 'I wait.', tools: [tool('touch /tmp/x; tail -f /tmp/x')] }] },
      );
      const isRunning = async (run: Run) =>
        (await inside(run, 'ps ax | grep -c "[t]ail -f /tmp/x" || true')).stdout.trim();
      const run = await start('endless');
      await eventually('the tool runs', async () => (await isRunning(run)) !== '0');
      await daemon.client.runs.interrupt(run.id, { reason: 'enough' });
      await happens(run.id, 'agent.interrupted');
      expect(await isRunning(run)).toBe('0');
      expect(await daemon.client.runs.get(run.id)).toMatchObject({ state: 'running', working: false });
      await end(run.id);

      const other = await start('endless');
      await eventually('the tool runs', async () => (await isRunning(other)) !== '0');
      const { id } = await daemon.client.runs.tell(other.id, hint, { urgency: 'now' });
      await isDelivered(other.id);
      expect(toldOnce(model('endless'), id)).toBe(true);
      await isState(other.id, 'completed');
      expect(await isRunning(other)).toBe('0');
      await end(other.id);
    });

    test('goes on with its session after it was killed, and a message from before arrives once', async () => {
      stage.play(model('killed'), ({ body }) =>
        body.includes(hint)
          ? { steps: [{ text: 'I was told.' }] }
          : {
              by: 'tool-results',
              steps: [
                { text: 'I begin.', tools: [tool('echo kept > /workspace/kept')] },
                { text: 'I wait.', tools: [tool('touch /tmp/x; tail -f /tmp/x')] },
              ],
            },
      );
      const run = await start('killed');
      await happens(run.id, 'agent.tool_use', 2);
      await happens(run.id, 'run.step', 2);
      const { id } = await daemon.client.runs.tell(run.id, hint, { urgency: 'queue' });
      await inside(run, 'kill -9 -1');
      await happens(run.id, 'agent.restarted');
      await eventually('it works again', async () => (await daemon.client.runs.get(run.id)).attempt > 1);
      await isDelivered(run.id);
      await isState(run.id, 'completed');
      const asked = stage.asked.filter((each) => each.model === model('killed')).at(-1)!;
      // It was not told its task again: that is in the session.
      expect(asked.body).toContain('play killed');
      expect((await inside(run, 'cat /workspace/kept')).stdout).toBe('kept\n');
      expect(toldOnce(model('killed'), id)).toBe(true);
      await end(run.id);
    });

    test('works on while the daemon is killed; its key is in no memory and on no disk of its sandbox', async () => {
      stage.play(model('daemon'), ({ body }) =>
        body.includes(hint)
          ? { steps: [{ text: 'I was told.' }] }
          : { steps: [{ text: 'On and on.', tools: [tool('sleep 0.3; echo again')] }] },
      );
      const run = await start('daemon');
      await happens(run.id, 'agent.tool_use');
      const { id } = await daemon.client.runs.tell(run.id, hint, { urgency: 'queue' });
      await daemon.kill();
      await daemon.restart();
      await happens(run.id, 'agent.tool_use', 3);

      const { found, processes } = inMemoryOf(run, [key, 'coppice-placeholder']);
      expect(processes).toBeGreaterThan(0);
      expect([...found]).toEqual(['coppice-placeholder']);
      const onDisk = await inside(
        run,
        `grep -rlF '${key}' /root /workspace /tmp /etc /run /var 2>/dev/null; true`,
      );
      expect(onDisk.stdout).toBe('');
      expect(stage.asked.at(-1)!.headers).toMatchObject(
        expect.objectContaining(
          name === 'pi' || name === 'opencode' ? { 'x-api-key': key } : { authorization: `Bearer ${key}` },
        ),
      );

      await daemon.client.runs.interrupt(run.id);
      await isDelivered(run.id);
      await isState(run.id, 'completed');
      expect(toldOnce(model('daemon'), id)).toBe(true);
      await end(run.id);
    });
  });
});
