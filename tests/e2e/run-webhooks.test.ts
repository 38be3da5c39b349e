import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RunEvent } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';
import { callerOf, saysItsToken } from './run-caller.ts';

interface Got {
  readonly id: string;
  readonly path: string;
  readonly signed: string;
  readonly signature: string;
  readonly event: RunEvent;
}

describe('a webhook of run events', () => {
  let daemon: RunningDaemon;
  let server: Server;
  let base: string;
  const got: Got[] = [];
  /** What the receiver answers at a path; 204 unless told otherwise. */
  const answers = new Map<string, (response: ServerResponse) => void>();

  beforeAll(async () => {
    server = createServer(async (request, response) => {
      let body = '';
      for await (const chunk of request) body += chunk;
      const { headers, url = '' } = request;
      const answer = answers.get(url) ?? ((plain) => plain.writeHead(204).end());
      if (body !== '')
        got.push({
          id: String(headers['webhook-id']),
          path: url,
          signed: `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`,
          signature: String(headers['webhook-signature']),
          event: (JSON.parse(body) as { data: RunEvent }).data,
        });
      answer(response);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    daemon = await RunningDaemon.start();
  });
  afterAll(async () => {
    server?.close();
    server?.closeAllConnections();
    await daemon?.[Symbol.asyncDispose]();
  });

  const begin = async (name: string) => {
    const { id } = await daemon.client.runs.start({ name, task: name, command: saysItsToken, steps: 'none' });
    const call = await callerOf(daemon, name);
    return {
      id,
      say: async (text: string) => {
        const said = await call('POST', 'events', { type: 'agent.message', data: { text } });
        expect(said.status).toBe(201);
        return said.body.seq as number;
      },
    };
  };
  const end = async (run: string) => {
    await daemon.client.runs.stop(run);
    await daemon.client.runs.remove(run);
  };
  const at = (path: string): Got[] => got.filter((each) => each.path === path);
  const seqs = (path: string): number[] => at(path).map(({ event }) => event.seq);
  const webhookOf = async (id: string) =>
    (await daemon.client.runs.webhooks.list()).find((webhook) => webhook.id === id)!;

  test('gets every event of a run in order from the number that it asks for, signed, each once', async () => {
    const { webhooks } = daemon.client.runs;
    const run = await begin('all');
    for (let n = 0; n < 5; n += 1) await run.say(`${n}`);
    const added = await webhooks.add({ url: `${base}/all`, run: 'all', after: 3 });
    expect(added).toMatchObject({
      run_id: run.id,
      state: 'active',
      secret: expect.stringMatching(/^whsec_/),
    });
    const last = await run.say('last');
    await eventually('the last has come', async () => seqs('/all').includes(last));
    const known = (await daemon.client.runs.listEvents('all', { after: 3 })).events;
    expect(at('/all').map(({ event }) => event)).toEqual(
      known.filter(({ seq }) => seq <= seqs('/all').at(-1)!),
    );
    const key = Buffer.from(added.secret!.slice('whsec_'.length), 'base64');
    for (const { signed, signature, id, event } of at('/all')) {
      expect(signature).toBe(`v1,${createHmac('sha256', key).update(signed).digest('base64')}`);
      expect(id).toBe(`${run.id}.${event.seq}`);
    }
    expect(await webhookOf(added.id)).toMatchObject({ secret: null, waiting: 0, failure: null });
    await end('all');
    expect(await webhookOf(added.id)).toBeUndefined();
  });

  test('of all runs gets those of runs that come later, and only the types that it wants', async () => {
    const { webhooks } = daemon.client.runs;
    const before = await begin('earlier');
    const { id } = await webhooks.add({ url: `${base}/some`, types: 'run.state,agent.message' });
    const later = await begin('later');
    await later.say('from the later one');
    await before.say('from the earlier one');
    await end('later');
    await eventually(
      'both have spoken',
      async () => new Set(at('/some').map(({ event }) => event.run_id)).size === 2,
    );
    await eventually('it has caught up', async () => (await webhookOf(id)).waiting === 0);
    expect(new Set(at('/some').map(({ event }) => event.type))).toEqual(
      new Set(['run.state', 'agent.message']),
    );
    expect(at('/some').filter(({ event }) => event.run_id === before.id)).toMatchObject([
      { event: { type: 'agent.message' } },
    ]);
    await webhooks.remove(id);
    await end('earlier');
  });

  test('is tried again after a failure, with pauses that outlive the daemon, and nothing is left out', async () => {
    const { webhooks } = daemon.client.runs;
    const run = await begin('flaky');
    answers.set('/flaky', (response) => response.writeHead(503, { 'retry-after': '1' }).end());
    const { id } = await webhooks.add({ url: `${base}/flaky`, run: 'flaky', types: 'agent.message' });
    const wanted = [await run.say('one'), await run.say('two')];
    await eventually('it failed', async () => (await webhookOf(id)).failure === 'it answered 503');
    expect(new Set(seqs('/flaky'))).toEqual(new Set([wanted[0]]));
    await daemon.kill();
    await daemon.restart();
    expect(await webhookOf(id)).toMatchObject({ state: 'active', failure: 'it answered 503' });
    answers.delete('/flaky');
    await eventually('both have come', async () => seqs('/flaky').includes(wanted[1]!), 60_000);
    expect([...new Set(seqs('/flaky'))]).toEqual(wanted);
    expect(new Set(at('/flaky').map((each) => each.id)).size).toBe(2);
    expect(await webhookOf(id)).toMatchObject({ failure: null });
    await end('flaky');
  });

  test('posts the event again under the same id where the daemon dies before it could write down that it was taken', async () => {
    const { webhooks } = daemon.client.runs;
    const run = await begin('killed');
    const { id } = await webhooks.add({ url: `${base}/killed`, run: 'killed', types: 'agent.message' });
    daemon.armKillPoint('webhook.posted');
    const seq = await run.say('once').catch(() => undefined);
    expect((await daemon.exited).signal).toBe('SIGKILL');
    daemon.disarm();
    await daemon.restart();
    const next = await run.say('twice');
    await eventually('the next has come', async () => seqs('/killed').includes(next));
    const first = seqs('/killed')[0]!;
    expect(seq === undefined || seq === first).toBe(true);
    expect(seqs('/killed')).toEqual([first, first, next]);
    expect(new Set(at('/killed').map((each) => each.id)).size).toBe(2);
    await webhooks.remove(id);
    await end('killed');
  });

  test('of a receiver that is gone is stopped, and goes on from any number when it is resumed', async () => {
    const { webhooks } = daemon.client.runs;
    const run = await begin('gone');
    answers.set('/gone', (response) => response.writeHead(410).end());
    const { id } = await webhooks.add({ url: `${base}/gone`, run: 'gone', types: 'agent.message' });
    const first = await run.say('one');
    await eventually('it is stopped', async () => (await webhookOf(id)).state === 'stopped');
    const second = await run.say('two');
    answers.delete('/gone');
    expect(await webhooks.resume(id)).toMatchObject({ state: 'active', failure: null });
    await eventually('both have come', async () => seqs('/gone').includes(second));
    got.length = 0;
    await webhooks.resume(id, { after: 0 });
    await eventually('both come again', async () => seqs('/gone').includes(second));
    expect(seqs('/gone')).toEqual([first, second]);
    await end('gone');
  });

  test('is not led elsewhere: a redirect is a failure, and URLs with a login or of other protocols are refused', async () => {
    const { webhooks } = daemon.client.runs;
    const run = await begin('led');
    answers.set('/led', (response) => response.writeHead(307, { location: `${base}/elsewhere` }).end());
    const { id } = await webhooks.add({ url: `${base}/led`, run: 'led', types: 'agent.message' });
    await run.say('follow me');
    await eventually('it failed', async () => /redirect/.test((await webhookOf(id)).failure ?? ''));
    expect(at('/elsewhere')).toEqual([]);
    for (const url of [
      'http://user:secret@example.invalid/',
      'file:///etc/passwd',
      'ftp://example.invalid',
      'x',
    ])
      await expect(webhooks.add({ url })).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(webhooks.add({ url: base, after: 1 })).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(webhooks.add({ url: base, run: 'nobody' })).rejects.toMatchObject({ code: 'not_found' });
    await expect(webhooks.add({ url: base, types: 'agent.nothing' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await end('led');
  });

  test('is managed by its command', async () => {
    const home = await CliHome.start();
    try {
      const [id] = (await home.ok('agent', 'webhook', 'add', `${base}/cli`, '--types', 'run.state')).split(
        '  ',
      );
      await home.ok('agent', 'start', '--name', 'play', '--task', 'play');
      await home.ok('agent', 'result', 'play');
      await eventually('its end is told', async () =>
        at('/cli').some(({ event }) => event.type === 'run.state' && event.data.to === 'completed'),
      );
      expect(await home.ok('agent', 'webhook', 'ls')).toMatch(/active +all runs +run\.state/);
      expect(await home.ok('agent', 'webhook', 'resume', id!)).toContain('active');
      await home.ok('agent', 'webhook', 'rm', id!);
      expect(await home.ok('agent', 'webhook', 'ls')).toContain('No webhooks.');
      await home.ok('agent', 'rm', 'play');
    } finally {
      await home.remove();
    }
  });
});
