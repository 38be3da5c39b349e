import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Event } from '@coppice/protocol';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rawCall } from './raw-call.ts';

const call = `curl -sS -o /dev/null -d '{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"`;
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

describe('events and costs', () => {
  let daemon: RunningDaemon;
  /** Two sandboxes in the project web, and one in shop; each made a call to a model. */
  let [web, sister, shop]: Sandbox[] = [];
  let ofWeb: Coppice;
  let ofOne: Coppice;
  let ofPerson: Coppice;

  const clientWith = (token: string) => new Coppice({ url: daemon.url, token });
  const make = async (project: string, name: string): Promise<Sandbox> => {
    const sandbox = await daemon.client.sandboxes.create({ name, project, network: { allow: ['models'] } });
    await sandbox.exec(resolver);
    await sandbox.exec(call);
    return sandbox;
  };
  const costOfAll = async (): Promise<number> => (await daemon.client.costs()).total.calls;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ programs: ['curl'] });
    const script = { steps: [{ text: 'ok', usage: { input: 1000, output: 1000 } }] };
    writeFileSync(join(daemon.home, 'demo.json'), JSON.stringify(script));
    const models = { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] };
    writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
    await daemon.client.budgets.set({ scope: 'home', tokens: 2500 });
    await daemon.client.budgets.set({ scope: 'project', name: 'web', micros: 100_000 });
    await daemon.client.budgets.set({ scope: 'project', name: 'shop', micros: 100_000 });
    web = await make('web', 'box');
    sister = await make('web', 'sister');
    shop = await make('shop', 'box');
    await daemon.client.budgets.set({ scope: 'sandbox', name: web.id, micros: 50_000 });
    await daemon.client.budgets.set({ scope: 'sandbox', name: shop.id, micros: 50_000 });
    const { tokens } = daemon.client;
    ofWeb = clientWith((await tokens.create({ name: 'web', scope: 'project:web' })).secret);
    ofPerson = clientWith(
      (await tokens.create({ name: 'ann', scope: 'project:web', person: 'ann', role: 'read' })).secret,
    );
    ofOne = clientWith(web.token!);
    await eventually('all three calls are settled', async () => {
      const { events } = await daemon.client.events.list({ type: 'model.settled' });
      return events.length === 3 && (await costOfAll()) === 3;
    });
  });
  afterAll(async () => {
    for (const client of [ofWeb, ofOne, ofPerson]) client?.close();
    await daemon?.[Symbol.asyncDispose]();
  });

  const idsOf = (events: readonly Event[]): Set<string | null> =>
    new Set(events.map(({ sandbox_id }) => sandbox_id));

  test('are those of the project for a token of a project, whoever holds it, and of the sandbox for a token of a sandbox', async () => {
    for (const client of [ofWeb, ofPerson]) {
      const { events } = await client.events.list();
      expect(idsOf(events)).toEqual(new Set([web!.id, sister!.id]));
      expect(events.map(({ type }) => type)).toContain('model.settled');
      expect(JSON.stringify(events)).not.toContain(shop!.id);
      const costs = await client.costs({ by: 'sandbox' });
      expect(new Set(costs.rows.map(({ key }) => key.sandbox))).toEqual(new Set([web!.id, sister!.id]));
      expect(costs.total.calls).toBe(2);
      const budgets = await client.budgets.list();
      expect(budgets.map(({ scope, name }) => `${scope} ${name}`).sort()).toEqual([
        'project web',
        `sandbox ${web!.id}`,
      ]);
    }
    expect(idsOf((await ofOne.events.list()).events)).toEqual(new Set([web!.id]));
    expect((await ofOne.costs()).total.calls).toBe(1);
    expect((await ofOne.budgets.list()).map(({ name }) => name)).toEqual([web!.id]);
    expect(idsOf((await daemon.client.events.list()).events).size).toBeGreaterThan(3);
    expect((await daemon.client.budgets.list()).length).toBe(5);
  });

  test('of others are refused however they are asked for', async () => {
    for (const sandbox of [shop!.id, 'shop/box']) {
      await expect(ofWeb.events.list({ sandbox })).rejects.toMatchObject({ code: /not_found|forbidden/ });
      await expect(ofWeb.costs({ sandbox })).rejects.toMatchObject({ code: /not_found|forbidden/ });
    }
    for (const sandbox of [sister!.id, shop!.id]) {
      await expect(ofOne.events.list({ sandbox })).rejects.toMatchObject({ code: 'forbidden' });
      await expect(ofOne.costs({ sandbox })).rejects.toMatchObject({ code: 'forbidden' });
    }
    await expect(ofWeb.costs({ project: 'shop' })).rejects.toMatchObject({ code: 'forbidden' });
    expect((await ofWeb.events.list({ sandbox: 'sister' })).events.length).toBeGreaterThan(0);
    expect((await ofWeb.costs({ sandbox: 'sister' })).total.calls).toBe(1);
    const { secret } = await daemon.client.tokens.create({
      name: 'branch',
      scope: `branch:rp_${'0'.repeat(26)}:main`,
    });
    for (const path of ['/v1/events', '/v1/events/stream', '/v1/costs', '/v1/budgets'])
      expect((await rawCall(daemon.url, { method: 'GET', path, token: secret })).status, path).toBe(403);
  });

  test('of a limit that is shared with others are for administrators: it tells what those spent', async () => {
    const thresholds = async (client: Coppice) =>
      (await client.events.list({ type: 'budget.threshold' })).events.map(({ data }) => data.scope);
    expect(await thresholds(daemon.client)).toContain('home');
    for (const client of [ofWeb, ofOne]) expect(await thresholds(client)).not.toContain('home');
  });

  test('come as they happen, also the last one of a sandbox and those of a sandbox that is gone', async () => {
    const { last_seq } = await daemon.client.events.list();
    const abort = new AbortController();
    const seen: Event[] = [];
    const following = (async () => {
      for await (const event of ofWeb.events.stream({ after: last_seq, signal: abort.signal }))
        seen.push(event);
    })().catch(() => {});
    const short = await daemon.client.sandboxes.create({ name: 'short', project: 'web' });
    const other = await daemon.client.sandboxes.create({ name: 'short', project: 'shop' });
    const snapshot = await short.snapshot({ name: 'kept' });
    for (const sandbox of [short, other]) await sandbox.destroy();
    await daemon.client.snapshots.delete(snapshot.id);
    await eventually('the deletion is heard', async () => seen.at(-1)?.type === 'snapshot.deleted');
    expect(seen.map(({ type }) => type)).toEqual([
      'sandbox.created',
      'snapshot.created',
      'sandbox.destroyed',
      'snapshot.deleted',
    ]);
    expect(idsOf(seen)).toEqual(new Set([short.id]));
    abort.abort();
    await following;
  });
});

test('the token of a run reads its own run, and no other, and changes neither', async () => {
  await using daemon = await RunningDaemon.start();
  const { runs } = daemon.client;
  const mine = await runs.start({
    name: 'mine',
    task: 'wait',
    command: 'echo $COPPICE_RUN_TOKEN; sleep 600',
  });
  const other = await runs.start({ name: 'other', task: 'wait', command: 'sleep 600' });
  let token = '';
  await eventually('the program says its token', async () => {
    token = /cpt_[\w-]+/.exec(JSON.stringify(await runs.listEvents(mine.id)))?.[0] ?? '';
    return token !== '';
  });
  using inside = new Coppice({ url: daemon.url, token });
  expect(await inside.runs.get(mine.id)).toMatchObject({ id: mine.id, task: 'wait' });
  expect((await inside.runs.listEvents(mine.id)).events.length).toBeGreaterThan(0);
  expect((await inside.runs.steps(mine.id)).map(({ number }) => number)).toEqual([1]);
  for (const ref of [other.id, 'other', 'nobody'])
    for (const read of [
      () => inside.runs.get(ref),
      () => inside.runs.listEvents(ref),
      () => inside.runs.steps(ref),
    ])
      await expect(read(), ref).rejects.toMatchObject({ code: 'forbidden' });
  const changes = [
    () => inside.runs.list(),
    () => inside.runs.stop(mine.id),
    () => inside.runs.rewind(mine.id, 1),
    () => inside.runs.tell(mine.id, 'go on'),
    () => inside.runs.start({ task: 'another', command: 'true' }),
  ];
  for (const change of changes) await expect(change()).rejects.toMatchObject({ code: 'forbidden' });
  expect((await runs.get(mine.id)).state).toBe('running');
});
