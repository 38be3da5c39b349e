import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

let daemon: RunningDaemon;
const write = async (name: string, content: object | string) => {
  const directory = join(daemon.home, 'agent-templates');
  await mkdir(directory, { recursive: true });
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  await writeFile(join(directory, `${name}.json`), text);
};
const remove = (name: string) => rm(join(daemon.home, 'agent-templates', `${name}.json`));
beforeAll(async () => {
  daemon = await RunningDaemon.start();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

describe('an agent from a file', () => {
  test('starts with its image, limits and command, where the caller says nothing else', async () => {
    const { runs, sandboxes } = daemon.client;
    await write('greeter', {
      name: 'greeter',
      title: 'says hello',
      base: 'scripted',
      image: 'tiny',
      command: 'echo "hello: $COPPICE_TASK"',
      limits: { memory_mb: 96, time_s: 300 },
    });
    const run = await runs.start({ task: 'greet', agent: 'greeter' });
    expect(await runs.wait(run.id)).toMatchObject({
      outcome: 'succeeded',
      agent: 'greeter',
      adapter: 'command',
    });
    const { events } = await runs.listEvents(run.id, { types: 'agent.output' });
    expect(JSON.stringify(events)).toContain('hello: greet');
    const { sandbox_id } = await runs.get(run.id);
    expect(await sandboxes.at(sandbox_id!).inspect()).toMatchObject({ memory_mb: 96 });
    const larger = await runs.start({ task: 'greet', agent: 'greeter', memory_mb: 128 });
    const ended = await runs.wait(larger.id);
    expect(await sandboxes.at(ended.sandbox_id!).inspect()).toMatchObject({ memory_mb: 128 });
    for (const { id } of [run, larger]) await runs.remove(id);
    await remove('greeter');
  });

  test('is listed beside those that ship, and takes the place of one of the same name', async () => {
    const { runs } = daemon.client;
    const names = (await runs.agents()).map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['command', 'scripted', 'pi', 'codex', 'claude', 'goose', 'gemini']),
    );
    expect((await runs.agents()).find(({ name }) => name === 'claude')).toMatchObject({
      proprietary: true,
      file: null,
      packages: { '@anthropic-ai/claude-code': '2.1.325' },
    });
    await write('codex', { name: 'codex', base: 'codex', model: 'gpt-mini', permissions: 'deny' });
    const own = (await runs.agents()).filter(({ name }) => name === 'codex');
    expect(own).toMatchObject([
      { base: 'codex', model: 'gpt-mini', permissions: 'deny', file: expect.stringContaining('codex.json') },
    ]);
    await remove('codex');
  });

  test.each([
    ['{', /wrong\.json is no JSON/],
    [{ name: 'wrong' }, /wrong\.json is refused: base/],
    [{ name: 'wrong', base: 'nobody' }, /there is no agent nobody that ships/],
    [{ name: 'wrong', base: 'codex', modell: 'x' }, /modell/],
    [{ name: 'wrong', base: 'codex', image: 'a', snapshot: 'b:c' }, /image and snapshot/],
    [{ name: 'wrong', base: 'codex', command: 'codex --fast' }, /list of words/],
    [{ name: 'wrong', base: 'scripted', model: 'x' }, /model: means nothing/],
    [{ name: 'wrong', base: 'goose', files: { '../.ssh/authorized_keys': 'x' } }, /files\.\.\.\/\.ssh/],
    [{ name: 'wrong', base: 'goose', limits: { memory_mb: 1 } }, /limits\.memory_mb/],
  ])('that is wrong is refused, with the file and what is wrong in it: %j', async (content, said) => {
    const { runs } = daemon.client;
    await write('wrong', content);
    await expect(runs.start({ task: 'x', agent: 'wrong' })).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringMatching(said),
    });
    // It is nobody else's trouble.
    const run = await runs.start({ task: 'x', agent: 'scripted' });
    expect(await runs.wait(run.id)).toMatchObject({ outcome: 'succeeded' });
    await runs.remove(run.id);
    await remove('wrong');
    await expect(runs.start({ task: 'x', agent: 'wrong' })).rejects.toMatchObject({
      code: 'not_found',
      hint: expect.stringContaining('agent-templates as wrong.json'),
    });
  });
});
