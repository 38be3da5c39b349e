import type { RunEvent } from '@coppice/protocol';
import type { Coppice } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

describe('a run of a program', () => {
  let daemon: RunningDaemon;
  let coppice: Coppice;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    coppice = daemon.client;
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const all = async (run: string): Promise<RunEvent[]> => (await coppice.runs.listEvents(run)).events;

  /** The token of its run, as a program that tells it to everybody has it. */
  async function tokenOf(run: string): Promise<string> {
    let token: string | undefined;
    await eventually('the program says its token', async () => {
      const said = (await all(run)).filter((event) => event.type === 'agent.output');
      token = /cpt_[A-Za-z0-9_-]+/.exec(said.map(({ data }) => data.text.text).join(''))?.[0];
      return token !== undefined;
    });
    return token!;
  }

  const inside = async (token: string, method: string, path: string, body?: object) => {
    const response = await fetch(`${daemon.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };

  test('goes from pending to completed, each transition with its reason, and leaves events without a gap', async () => {
    const started = await coppice.runs.start({
      name: 'hello',
      task: 'say hello',
      command: 'echo hello; echo oops >&2',
    });
    expect(started).toMatchObject({ agent: 'command', owns_sandbox: true, outcome: null });
    const ended = await coppice.runs.wait('hello');
    expect(ended).toMatchObject({ state: 'completed', outcome: 'succeeded', reason: 'it exited with 0' });
    expect(ended.transitions.map(({ from, to }) => [from, to])).toEqual([
      [null, 'pending'],
      ['pending', 'creating'],
      ['creating', 'running'],
      ['running', 'completing'],
      ['completing', 'completed'],
    ]);
    expect(ended.transitions.every(({ reason }) => reason !== '')).toBe(true);
    const events = await all('hello');
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    const output = events.filter((event) => event.type === 'agent.output');
    expect(output.find(({ data }) => data.stream === 'stdout')?.data.text).toEqual({
      text: 'hello\n',
      bytes: 6,
      ref: null,
    });
    expect(await coppice.runs.result('hello')).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    await coppice.runs.remove('hello');
    await expect(coppice.runs.get('hello')).rejects.toMatchObject({ code: 'not_found' });
    expect((await coppice.sandboxes.list()).some(({ name }) => name === 'hello')).toBe(false);
  });

  test('fails where the program does, where its time is over, and where there is no such image', async () => {
    const failing = await coppice.runs.start({ task: 'fail', command: ['sh', '-c', 'exit 3'] });
    expect(await coppice.runs.wait(failing.id)).toMatchObject({
      state: 'failed',
      outcome: 'failed',
      reason: 'it exited with 3',
    });
    const late = await coppice.runs.start({ task: 'take long', command: 'sleep 600', timeout_s: 1 });
    expect(await coppice.runs.wait(late.id)).toMatchObject({
      state: 'failed',
      reason: 'it worked for longer than 1 s',
    });
    const nowhere = await coppice.runs.start({ task: 'be', command: 'true', image: 'no-such-image' });
    expect(await coppice.runs.wait(nowhere.id)).toMatchObject({ state: 'failed', sandbox_id: null });
    for (const { id } of [failing, late, nowhere]) await coppice.runs.remove(id);
  });

  test('that is stopped is completed as cancelled, and its program ends', async () => {
    const sandbox = await coppice.sandboxes.create({ name: 'given' });
    await coppice.runs.start({ name: 'endless', task: 'wait', command: 'sleep 1234', sandbox: 'given' });
    await eventually('it works', async () => (await coppice.runs.get('endless')).state === 'running');
    expect(await coppice.runs.stop('endless', { reason: 'enough' })).toMatchObject({
      state: 'completed',
      outcome: 'cancelled',
      reason: 'enough',
    });
    await eventually('the program ends', async () =>
      (await sandbox.jobs.list()).every(({ running }) => !running),
    );
    await coppice.runs.remove('endless');
    expect((await sandbox.inspect()).state).toBe('running');
    await sandbox.destroy();
  });

  test('that cannot be paused, as its sandbox keeps no memory, works on', async () => {
    const command = 'while :; do date +%s%N > /workspace/now; sleep 0.05; done';
    await coppice.runs.start({ name: 'restless', task: 'work', command });
    await eventually('it works', async () => (await coppice.runs.get('restless')).state === 'running');
    await expect(coppice.runs.pause('restless')).rejects.toMatchObject({ code: 'unsupported' });
    expect(await coppice.runs.get('restless')).toMatchObject({ state: 'running', paused: false });
    expect((await all('restless')).some(({ type }) => type === 'run.paused')).toBe(false);
    await coppice.runs.stop('restless');
    await coppice.runs.remove('restless');
  });

  test('of an agent with a protocol of its own lets no program beside it take messages', async () => {
    await using sandbox = await coppice.sandboxes.create();
    await sandbox.files.write(
      '/opt/coppice/agents/bin/goose',
      '#!/bin/sh\necho "$COPPICE_RUN_TOKEN" > /root/token\nexec sleep 600\n',
      { mode: '755' },
    );
    const run = await coppice.runs.start({ task: 'wait', agent: 'goose', sandbox: sandbox.id });
    await eventually('it runs', async () => (await sandbox.exec('test -s /root/token')).exit_code === 0);
    await coppice.runs.tell(run.id, 'for the agent alone');
    const token = (await sandbox.exec('cat /root/token')).stdout.trim();
    expect(await inside(token, 'GET', '/v1/run/messages')).toMatchObject({
      status: 409,
      body: { code: 'wrong_state', hint: expect.stringContaining('`command`') },
    });
    expect((await coppice.runs.messages(run.id))[0]).not.toMatchObject({ state: 'delivered' });
    await coppice.runs.stop(run.id);
    await coppice.runs.remove(run.id);
  });

  test('reports events, fetches messages and says that it is done with its own token, reads its own run, and reaches nothing else', async () => {
    const told = 'echo $COPPICE_RUN_TOKEN; sleep 600';
    const [one, two] = await Promise.all([
      coppice.runs.start({ task: 'talk', command: told }),
      coppice.runs.start({ task: 'talk too', command: told }),
    ]);
    const [tokenOne, tokenTwo] = [await tokenOf(one.id), await tokenOf(two.id)];
    const long = 'x'.repeat(20_000);
    const said = await inside(tokenOne, 'POST', '/v1/run/events', {
      type: 'agent.message',
      data: { text: long },
    });
    expect(said.status).toBe(201);
    const event = (await all(one.id)).find(({ seq }) => seq === said.body.seq);
    expect(event).toMatchObject({
      type: 'agent.message',
      source: 'agent',
      data: { text: { bytes: 20_000 } },
    });
    expect((await all(two.id)).some(({ type }) => type === 'agent.message')).toBe(false);
    const { ref } = (event as Extract<RunEvent, { type: 'agent.message' }>).data.text;
    expect(await coppice.runs.body(one.id, ref!)).toBe(long);

    const bad = { type: 'agent.message', data: { words: 1 } };
    expect(await inside(tokenOne, 'POST', '/v1/run/events', bad)).toMatchObject({
      status: 400,
      body: { code: 'invalid_argument', detail: expect.stringContaining('data.text') },
    });
    const forged = { type: 'run.state', data: {} };
    expect((await inside(tokenOne, 'POST', '/v1/run/events', forged)).status).toBe(400);
    const foreign = { type: 'agent.message', run_id: two.id, data: { text: 'not mine' } };
    expect((await inside(tokenOne, 'POST', '/v1/run/events', foreign)).status).toBe(400);
    expect((await inside(tokenOne, 'GET', `/v1/runs/${one.id}`)).status).toBe(200);
    for (const path of ['/v1/runs', `/v1/runs/${two.id}`, '/v1/sandboxes', `/v1/sandboxes/${one.sandbox_id}`])
      expect((await inside(tokenOne, 'GET', path)).status, path).toBe(403);
    for (const call of ['messages', 'interrupt', 'resume', 'rewind', 'fork', 'stop'])
      expect((await inside(tokenOne, 'POST', `/v1/runs/${one.id}/${call}`, {})).status, call).toBe(403);

    const waiting = inside(tokenTwo, 'GET', '/v1/run/messages?wait_s=20');
    const message = await coppice.runs.tell(two.id, 'use a queue', { kind: 'nudge' });
    expect(message).toMatchObject({ state: 'accepted', number: 1 });
    expect((await waiting).body).toMatchObject({
      items: [{ id: message.id, number: 1, text: 'use a queue' }],
    });
    expect((await coppice.runs.messages(two.id))[0]).toMatchObject({ state: 'sent', via: 'inbox' });
    expect((await inside(tokenTwo, 'GET', '/v1/run/messages?after=1')).body).toEqual({ items: [] });
    expect((await coppice.runs.messages(two.id))[0]).toMatchObject({ state: 'delivered' });
    expect((await inside(tokenOne, 'GET', '/v1/run/messages')).body).toEqual({ items: [] });

    expect((await inside(tokenOne, 'POST', '/v1/run/done', { text: 'all green' })).status).toBe(200);
    await coppice.runs.stop(two.id);
    await eventually(
      'its token is void',
      async () => (await inside(tokenTwo, 'GET', '/v1/run/messages')).status === 401,
    );
    await coppice.runs.stop(one.id);
    await coppice.runs.remove(one.id);
    await coppice.runs.remove(two.id);
  });

  test('is not flooded: who reports too much is told to wait', async () => {
    const run = await coppice.runs.start({ task: 'flood', command: 'echo $COPPICE_RUN_TOKEN; sleep 600' });
    const token = await tokenOf(run.id);
    const event = { type: 'agent.progress', data: { message: 'on and on', percent: null } };
    let refused = 0;
    for (let n = 0; n < 40 && refused === 0; n += 1) {
      const answers = await Promise.all(
        Array.from({ length: 25 }, () => inside(token, 'POST', '/v1/run/events', event)),
      );
      refused += answers.filter(({ status }) => status === 429).length;
    }
    expect(refused).toBeGreaterThan(0);
    const large = { type: 'agent.message', data: { text: 'y'.repeat(300_000) } };
    expect((await inside(token, 'POST', '/v1/run/events', large)).status).toBe(413);
    await coppice.runs.stop(run.id);
    await coppice.runs.remove(run.id);
  });

  test('goes on while no daemon is there, and the next one has all of its output once', async () => {
    const command = 'i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; sleep 0.02; done';
    const run = await coppice.runs.start({ task: 'count', command });
    await eventually('it has begun', async () =>
      (await all(run.id)).some(({ type }) => type === 'agent.output'),
    );
    await daemon.kill();
    await daemon.restart();
    expect(await coppice.runs.wait(run.id)).toMatchObject({ state: 'completed', attempt: 1 });
    const events = await all(run.id);
    const output = events.filter((event) => event.type === 'agent.output').map(({ data }) => data.text.text);
    expect(output.join('')).toBe(Array.from({ length: 200 }, (_, n) => `line ${n + 1}\n`).join(''));
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    await coppice.runs.remove(run.id);
  });

  test('can be rewound to a step and forked from one: files as they were, and the program goes on from there', async () => {
    const command =
      'echo began >> /root/story; cat /root/story; [ -e /root/hint ] && cat /root/hint; sleep 600';
    const run = await coppice.runs.start({ name: 'tale', task: 'tell', command });
    const says = (id: string, text: string) =>
      eventually(`${text} is said`, async () => {
        const output = (await all(id)).filter((event) => event.type === 'agent.output');
        return output
          .map(({ data }) => data.text.text)
          .join('')
          .includes(text);
      });
    await says(run.id, 'began\n');
    expect(await coppice.runs.steps(run.id)).toMatchObject([{ number: 1, kind: 'start' }]);
    const sandbox = coppice.sandboxes.at((await coppice.runs.get(run.id)).sandbox_id!);
    await sandbox.exec('echo good > /root/hint');
    expect(await coppice.runs.takeStep(run.id, { title: 'a good idea' })).toMatchObject({
      number: 2,
      kind: 'manual',
      title: 'a good idea',
    });
    await sandbox.exec('echo bad > /root/hint; echo nonsense >> /root/story');

    expect(await coppice.runs.rewind(run.id, 2, { message: 'think again' })).toMatchObject({
      state: 'creating',
    });
    await says(run.id, 'began\nbegan\ngood\n');
    expect(await coppice.runs.get(run.id)).toMatchObject({ state: 'running', attempt: 2 });
    expect((await coppice.runs.messages(run.id)).map(({ text }) => text)).toEqual(['think again']);
    await expect(coppice.runs.rewind(run.id, 99)).rejects.toMatchObject({
      code: 'not_found',
      hint: 'The one before that is kept is 2.',
    });

    const fork = await coppice.runs.fork(run.id, { from: 1, name: 'other-tale', message: 'use a queue' });
    expect(fork.parent).toEqual({ run_id: run.id, step: 1 });
    await says(fork.id, 'began\n');
    const other = await coppice.runs.get(fork.id);
    expect(other.sandbox_id).not.toBe(sandbox.id);
    expect((await coppice.runs.messages(fork.id)).map(({ text }) => text)).toEqual(['use a queue']);
    const comparison = await coppice.runs.compare(run.id, fork.id);
    expect(comparison).toMatchObject({ common: { run_id: run.id, step: 1 }, compared_files: true });
    expect(comparison.files.map(({ path }) => path)).toContain('/root/hint');

    await coppice.runs.stop(run.id);
    await coppice.runs.rewind(run.id, 1);
    await eventually('it works again', async () => (await coppice.runs.get(run.id)).state === 'running');
    expect(await coppice.runs.get(run.id)).toMatchObject({ outcome: null, ended_at: null });
    for (const id of [fork.id, run.id]) {
      await coppice.runs.stop(id);
      await coppice.runs.remove(id);
    }
    expect((await coppice.snapshots.list()).filter(({ tags }) => tags.includes('run-step'))).toEqual([]);
  });
});

describe('coppice agent', () => {
  let home: CliHome;
  beforeAll(async () => {
    home = await CliHome.start();
  });
  afterAll(() => home?.remove());

  test('starts one with visible steps, shows it, takes it back and apart, without a key', async () => {
    const started = await home.run(['agent', 'start', '--name', 'play', '--task', 'write things down']);
    expect(started).toMatchObject({ code: 0, stdout: expect.stringContaining('coppice agent watch play') });
    expect(started.stderr).toMatch(/run\.setup .*the sandbox[\s\S]*the agent scripted/);
    expect(await home.ok('agent', 'result', 'play')).toBe('succeeded: it exited with 0');
    expect(await home.ok('agent', 'watch', 'play')).toContain('I wrote AGENT-NOTES.md.');
    expect(await home.ok('agent', 'ls')).toMatch(/play +completed +scripted/);
    expect(await home.ok('agent', 'show', 'play')).toContain('step 1  start  before the agent started');
    const forked = JSON.parse(
      await home.ok('agent', 'fork', 'play', '--from', '1', '--name', 'again', '--json'),
    );
    expect(forked).toMatchObject({ name: 'again', parent: { step: 1 } });
    expect(await home.ok('agent', 'result', 'again')).toContain('succeeded');
    expect(await home.ok('agent', 'compare', 'play', 'again')).toContain('before the agent started');
    const raced = JSON.parse(
      await home.ok(
        'agent',
        'race',
        'play',
        '--from',
        '1',
        '--n',
        '2',
        '--judge',
        'test -s /workspace/AGENT-NOTES.md',
        '--json',
      ),
    ) as { entries: { exit_code: number; run_id: string }[]; winner: string; merged: boolean };
    expect(raced).toMatchObject({ merged: true, entries: [{ exit_code: 0 }, { exit_code: 0 }] });
    const late = await home.run(['agent', 'tell', 'play', 'hurry']);
    expect(late.code).not.toBe(0);
    expect(late.stderr).toContain('coppice agent rewind play --to N');
    const unknown = await home.run(['agent', 'start', '--task', 'x', '--agent', 'nobody']);
    expect(unknown.stderr).toContain('there is no agent nobody');
    for (const { run_id } of raced.entries) await home.ok('agent', 'rm', run_id);
    await home.ok('agent', 'rm', 'again');
    await home.ok('agent', 'rm', 'play');
    expect(await home.ok('agent', 'ls')).toContain('No runs.');
  });
});
