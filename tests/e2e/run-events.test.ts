import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { daemonWithGit } from '../mcp/git-image.ts';
import { callerOf, saysItsToken } from './run-caller.ts';
import { RunSocketClient } from './run-socket-client.ts';

describe('the events of a run', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await daemonWithGit();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const begin = async (name: string) => {
    const { id } = await daemon.client.runs.start({ name, task: name, command: saysItsToken, steps: 'none' });
    const call = await callerOf(daemon, name);
    const report = async (type: string, data: object): Promise<number> => {
      const said = await call('POST', 'events', { type, data });
      expect(said).toMatchObject({ status: 201 });
      return said.body.seq as number;
    };
    return { id, call, report };
  };
  const end = async (...runs: string[]) => {
    for (const run of runs) {
      await daemon.client.runs.stop(run);
      await daemon.client.runs.remove(run);
    }
  };
  const progress = (message: string) => ({ message, percent: null });

  test('reach a WebSocket as they happen: of the runs and types that were asked for, from any number', async () => {
    const [one, two] = [await begin('ws-one'), await begin('ws-two')];
    const before = await one.report('agent.progress', progress('before'));
    const client = await RunSocketClient.open(daemon);
    client.say({ type: 'subscribe', run: 'ws-one', after: before, types: 'agent.progress,agent.custom' });
    await eventually('it is subscribed', async () => client.answers.length === 1);
    expect(client.answers[0]).toEqual({ type: 'subscribed', run: one.id, after: before });
    await two.report('agent.progress', progress('of another run'));
    await one.report('agent.message', { text: 'of another type' });
    const nested = { deep: [{ list: [1, 'two', null, { three: true }] }], text: 'ä\u2028\u0007' };
    const seqs = [
      await one.report('agent.progress', progress('first')),
      await one.report('agent.custom', { name: 'build.step_1', data: nested }),
    ];
    await eventually('both have come', async () => client.events.length >= 2);
    expect(client.events.map(({ seq, type, run_id }) => [seq, type, run_id])).toEqual([
      [seqs[0], 'agent.progress', one.id],
      [seqs[1], 'agent.custom', one.id],
    ]);
    expect(client.events[1]).toMatchObject({ source: 'agent', data: { name: 'build.step_1', data: nested } });

    // The same connection, from the beginning; then no more of it, and a run that is not there is an answer.
    client.events.length = 0;
    client.say({ type: 'subscribe', run: 'ws-one', after: 0 });
    await eventually('all have come', async () => client.events.some(({ seq }) => seq === seqs[1]));
    expect(client.events.map(({ seq }) => seq)).toEqual(client.events.map((_, index) => index + 1));
    client.say({ type: 'unsubscribe', run: 'ws-one' });
    client.say({ type: 'subscribe', run: 'nobody' });
    client.say('{"type":"subscribe"');
    client.say({ type: 'subscribe', run: 'ws-two', after: 0, token: 'x' });
    await eventually('the last is answered', async () => client.answers.length >= 5);
    expect(client.answers.slice(2).map(({ code }) => code)).toEqual([
      'not_found',
      'invalid_argument',
      'invalid_argument',
    ]);
    const known = client.events.length;
    await one.report('agent.progress', progress('unheard'));
    client.say({ type: 'subscribe', run: 'ws-two', after: 0, types: 'agent.*' });
    await eventually('the other run is heard', async () => client.of(two.id).length > 0);
    expect(client.of(one.id)).toHaveLength(known);
    await client.close();
    await end('ws-one', 'ws-two');
  });

  test('are streamed from any number on, and go on without a gap where a stream broke off', async () => {
    const { report } = await begin('sse');
    for (let n = 0; n < 5; n += 1) await report('agent.progress', progress(`${n}`));
    const read = async (headers: object, count: number): Promise<number[]> => {
      const controller = new AbortController();
      const response = await fetch(`${daemon.url}/v1/runs/sse/events/stream?types=agent.progress`, {
        headers: { authorization: `Bearer ${daemon.token}`, ...headers },
        signal: controller.signal,
      });
      const ids: number[] = [];
      let text = '';
      for await (const chunk of response.body!) {
        text += Buffer.from(chunk).toString();
        ids.splice(0, ids.length, ...[...text.matchAll(/^id: ?(\d+)$/gm)].map(([, id]) => Number(id)));
        if (ids.length >= count) break;
      }
      controller.abort();
      return ids;
    };
    const first = (await read({}, 2)).slice(0, 2);
    const rest = read({ 'last-event-id': String(first.at(-1)) }, 4);
    await report('agent.progress', progress('later'));
    const all = (await daemon.client.runs.listEvents('sse', { types: 'agent.progress' })).events;
    expect([...first, ...(await rest)]).toEqual(all.map(({ seq }) => seq));
    await end('sse');
  });

  test('are read as a trajectory page by page: noise and repetitions are folded, and nothing between two pages is lost', async () => {
    const { call, report } = await begin('pages');
    for (let n = 0; n < 3; n += 1) {
      expect((await call('POST', 'heartbeat', { status: 'busy' })).status).toBe(200);
      for (let again = 0; again < 4; again += 1) await report('agent.progress', progress(`${n}`));
      await report('agent.message', { text: `message ${n}` });
    }
    const messages: string[] = [];
    let folded = 0;
    let pages = 0;
    for (let after: number | null = 0; after !== null; pages += 1) {
      const page = await daemon.client.runs.trajectory('pages', { after, limit: 2 });
      expect(page.entries.length).toBeLessThanOrEqual(2);
      for (const { event } of page.entries)
        if (event.type === 'agent.message') messages.push((event.data.text as { text: string }).text);
      expect(page.entries.some(({ event }) => event.type === 'agent.heartbeat')).toBe(false);
      folded += page.folded;
      after = page.next;
    }
    expect(messages).toEqual(['message 0', 'message 1', 'message 2']);
    expect(pages).toBeGreaterThan(2);
    expect(folded).toBeGreaterThanOrEqual(3 + 3 * 3);
    await end('pages');
  });

  test('that make no sense are refused by name, with the list of what may be reported', async () => {
    const { call } = await begin('nonsense');
    const refused = async (body: unknown) => (await call('POST', 'events', body)).body;
    const known = (await daemon.client.runs.listEvents('nonsense')).last_seq;
    for (const [body, detail] of [
      [{ data: { text: 'x' } }, /type/],
      [{ type: 'agent message', data: { text: 'x' } }, /type/],
      [{ type: 'agent.message', source: 'daemon', data: { text: 'x' } }, /source/],
      [{ type: 'agent.message', data: {} }, /text/],
      [{ type: 'agent.custom', data: { name: 'has space', data: {} } }, /name/],
      [{ type: 'run.state', data: {} }, /type/],
      ['[]', /./],
      ['{"type":', /./],
    ] as const)
      expect(await refused(body), JSON.stringify(body)).toMatchObject({
        code: 'invalid_argument',
        detail: expect.stringMatching(detail),
      });
    const deep = `{"type":"agent.custom","data":{"name":"x","data":${'{"a":'.repeat(5000)}1${'}'.repeat(5000)}}}`;
    expect((await call('POST', 'events', deep)).status).toBeGreaterThanOrEqual(400);
    const pollution =
      '{"type":"agent.custom","data":{"name":"x","data":{"__proto__":{"polluted":1},"constructor":{"y":1}}}}';
    await call('POST', 'events', pollution);
    const { events } = await daemon.client.runs.listEvents('nonsense', { after: known });
    expect(events.filter(({ type }) => type !== 'agent.custom')).toEqual([]);
    expect((await daemon.client.runs.get('nonsense')) as { polluted?: unknown }).not.toHaveProperty(
      'polluted',
    );
    await end('nonsense');
  });

  test('tell of messages: given out in the order in which they came, each once, and none of another run', async () => {
    const [one, two] = [await begin('mail-one'), await begin('mail-two')];
    const { runs } = daemon.client;
    expect((await one.call('GET', 'messages')).body).toEqual({ items: [] });
    const told: string[] = [];
    for (const kind of ['user', 'nudge', 'constraint', 'interrupt'] as const)
      told.push((await runs.tell('mail-one', `as ${kind}`, { kind })).id);
    await runs.tell('mail-two', 'for the other');
    const texts = async ({ call }: typeof one, query = '') =>
      ((await call('GET', `messages${query}`)).body.items as { text: string }[]).map(({ text }) => text);
    expect(await texts(one)).toEqual(['as user', 'as nudge', 'as constraint', 'as interrupt']);
    expect(await texts(two)).toEqual(['for the other']);
    expect(await texts(one, '?after=4')).toEqual([]);
    expect((await runs.messages('mail-one')).map(({ state }) => state)).toEqual(Array(4).fill('delivered'));
    const { events } = await runs.listEvents('mail-one', { types: 'message.*' });
    for (const type of ['message.accepted', 'message.sent', 'message.delivered'])
      expect(
        events
          .filter((event) => event.type === type)
          .map(({ data }) => (data as { message_id: string }).message_id),
      ).toEqual(told);

    const post = (body: object) =>
      fetch(`${daemon.url}/v1/runs/mail-two/messages`, {
        method: 'POST',
        headers: { authorization: `Bearer ${daemon.token}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    for (const body of [
      {},
      { text: '' },
      { text: ' ' },
      { text: 'x', kind: 'shout' },
      { text: 'x', run: 'mail-one' },
    ])
      expect((await post(body)).status, JSON.stringify(body)).toBe(400);
    expect((await post({ text: 'x'.repeat(2_000_000) })).status).toBeGreaterThanOrEqual(400);
    expect(await runs.messages('mail-two')).toHaveLength(1);
    await end('mail-one', 'mail-two');
  });

  test('tell of the clone: the agent begins in its repository, at its branch, or does not begin at all', async () => {
    const { runs, sandboxes } = daemon.client;
    await using sandbox = await sandboxes.create();
    const git = 'git -c user.name=A -c user.email=a@example.invalid';
    const made = await sandbox.exec(
      `set -e; git init -q -b main /root/origin; cd /root/origin; echo main > at; git add .; ${git} commit -qm one;
       git checkout -q -b feature/x; echo feature > at; ${git} commit -qam two; git checkout -q main`,
    );
    expect(made).toMatchObject({ exit_code: 0 });
    const repo = { url: '/root/origin', ref: 'feature/x', path: '/root/work' };
    const run = await runs.start({
      task: 'look',
      command: 'cat at; git branch --show-current',
      sandbox: sandbox.id,
      repo,
    });
    expect(await runs.wait(run.id)).toMatchObject({ outcome: 'succeeded' });
    const { events } = await runs.listEvents(run.id);
    const said = events.map((event) => (event.type === 'agent.output' ? event.data.text.text : '')).join('');
    expect(said).toBe('feature\nfeature/x\n');
    const stages = events.flatMap((event) =>
      event.type === 'run.setup' ? [`${event.data.stage} ${event.data.status}`] : [],
    );
    expect(stages.some((stage) => /clone|repository/.test(stage))).toBe(true);
    await runs.remove(run.id);

    const nowhere = await runs.start({
      task: 'look',
      command: 'touch /root/began',
      sandbox: sandbox.id,
      repo: { ...repo, url: '/root/nothing-there', path: '/root/other' },
    });
    expect(await runs.wait(nowhere.id)).toMatchObject({
      state: 'failed',
      reason: expect.stringContaining('/root/nothing-there could not be cloned'),
    });
    expect((await sandbox.exec('test -e /root/began')).exit_code).toBe(1);
    await runs.remove(nowhere.id);
  });
});
