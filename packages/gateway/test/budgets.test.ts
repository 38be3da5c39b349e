import { describe, expect, test } from 'vitest';
import { type BudgetInput, Budgets, costs, type Heard, ScriptedUpstream } from '../src/index.ts';
import { type RunningGateway, startGateway } from './running-gateway.ts';

interface Stage extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly heard: Heard[];
  ask(body?: Record<string, unknown>, caller?: Record<string, unknown>): Promise<Response>;
}

/** A model of which a token of input costs 1 micro-dollar and one of output 10. */
const priceFile = { models: { small: { input: 1, output: 10 }, free: { input: 0, output: 0 } } };

async function stage(
  step: Record<string, unknown>,
  budgets: BudgetInput[],
  now?: () => number,
): Promise<Stage> {
  const heard: Heard[] = [];
  const upstream = new ScriptedUpstream({ steps: [step] }, (one) => heard.push(one));
  const url = await upstream.listen();
  const gateway = await startGateway({
    config: {
      upstreams: [
        { name: 'a', kind: 'anthropic', url },
        { name: 'c', kind: 'openai-compatible', url },
        { name: 'g', kind: 'google', url },
      ],
    },
    priceFile,
    ...(now === undefined ? {} : { now }),
  });
  for (const budget of budgets) gateway.budgets.set(budget);
  return {
    gateway,
    heard,
    ask: (body = {}, caller = { sandbox: 'dev', run: 'r1', agent: 'claude', project: 'web' }) =>
      fetch(`${gateway.url}/v1/messages`, {
        method: 'POST',
        headers: { 'x-test-caller': JSON.stringify(caller) },
        body: JSON.stringify({ model: 'small', max_tokens: 128_000, messages: [], ...body }),
      }),
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

const maxTokens = (heard: Heard): number => (JSON.parse(heard.body) as { max_tokens: number }).max_tokens;

const spentMicros = (it: Stage): number => costs(it.gateway.database, {}).total.costMicros;

describe('a budget', () => {
  test.each([8, 24])('is not overspent by %d calls at once that each take all they may', async (count) => {
    const micros = 600_000;
    await using it = await stage({ text: 'x', delayMs: 50, usage: { output: 1_000_000 } }, [
      { scope: 'project', name: 'web', micros },
    ]);
    const statuses = await Promise.all(Array.from({ length: count }, async () => (await it.ask()).status));
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThan(0);
    expect(statuses.every((status) => status === 200 || status === 402)).toBe(true);
    expect(spentMicros(it)).toBeLessThanOrEqual(micros);
    // It is used, too: each call after these takes what is left until there is nothing.
    while ((await it.ask()).status === 200);
    expect(spentMicros(it)).toBeGreaterThan(micros * 0.9);
    expect(spentMicros(it)).toBeLessThanOrEqual(micros);
    expect(it.gateway.budgets.list()).toMatchObject([
      { heldTokens: 0, heldMicros: 0, spentMicros: spentMicros(it) },
    ]);
  });

  test('that is small does not mind a large max_tokens: the request is lowered to what fits', async () => {
    await using it = await stage({ text: 'short', usage: { input: 20, output: 100 } }, [
      { scope: 'sandbox', name: 'dev', micros: 50_000 },
    ]);
    for (let call = 0; call < 10; call += 1) expect((await it.ask()).status).toBe(200);
    // 50,000 micro-dollars are 5,000 tokens of output.
    for (const heard of it.heard) expect(maxTokens(heard)).toBeLessThan(5_000);
    expect(spentMicros(it)).toBe(10 * (20 + 100 * 10));
  });

  test('that has room changes nothing in a request', async () => {
    await using it = await stage({ text: 'short' }, [{ scope: 'home', micros: 100_000_000 }]);
    const body = '{ "model":"small",\n "max_tokens": 128000, "messages": [ ], "temperature": 1.0 }';
    await fetch(`${it.gateway.url}/v1/messages`, { method: 'POST', body });
    expect(it.heard[0]?.body).toBe(body);
  });

  test('lowers the thinking of a request with its answer', async () => {
    await using it = await stage({ text: 'short' }, [{ scope: 'home', tokens: 10_000 }]);
    await it.ask({ thinking: { type: 'enabled', budget_tokens: 64_000 } });
    const sent = JSON.parse(it.heard[0]!.body) as { max_tokens: number; thinking: { budget_tokens: number } };
    expect(sent.max_tokens).toBeLessThanOrEqual(10_000);
    expect(sent.thinking.budget_tokens).toBeLessThan(sent.max_tokens);
    expect(sent.thinking.budget_tokens).toBeGreaterThanOrEqual(1024);
  });

  test.each([
    ['/v1/messages', 402, { type: 'error', error: { type: 'billing_error' } }],
    ['/v1/chat/completions', 402, { error: { code: 'insufficient_quota' } }],
    ['/v1/responses', 429, { error: { code: 'insufficient_quota' } }],
    ['/v1beta/models/small:generateContent', 402, { error: { code: 402, status: 'FAILED_PRECONDITION' } }],
  ])(
    'that is used up refuses %s with the status and form on which agents stop',
    async (path, status, form) => {
      await using it = await stage({ text: 'x' }, [{ scope: 'home', tokens: 100, action: 'pause' }]);
      const answer = await fetch(it.gateway.url + path, {
        method: 'POST',
        body: '{"model":"small","max_tokens":4096}',
      });
      expect(answer.status).toBe(status);
      const body = (await answer.json()) as { error: { message: string } };
      expect(body).toMatchObject(form);
      expect(body.error.message).toBe(
        'The budget of this home is used up: 0 of 100 tokens spent. Ask its owner to raise it.',
      );
      expect(answer.headers.get('x-should-retry')).toBe(status === 429 ? 'false' : null);
      expect(it.heard).toEqual([]);
      expect(it.gateway.calls()).toEqual([]);
      expect(it.gateway.events).toMatchObject([
        { type: 'budget.threshold', percent: 100, action: 'pause', scope: 'home', spent_tokens: 0 },
        { type: 'model.refused', reason: 'limit_reached' },
      ]);
    },
  );

  test('tells at 75 and 90 percent and at the end, once each', async () => {
    await using it = await stage({ text: 'x', usage: { input: 10, output: 390 } }, [
      { scope: 'agent', name: 'claude', tokens: 8_000, action: 'stop' },
    ]);
    while ((await it.ask()).status === 200);
    await it.ask();
    const told = it.gateway.events.filter((event) => event.type.startsWith('budget.'));
    expect(told).toMatchObject([
      { type: 'budget.threshold', percent: 75, scope: 'agent', name: 'claude', spent_tokens: 6_000 },
      { type: 'budget.threshold', percent: 90, spent_tokens: 7_200 },
      { type: 'budget.threshold', percent: 100, action: 'stop' },
    ]);
  });

  test.each(['sandbox', 'run', 'agent', 'project', 'home'] as const)(
    'of a %s holds for that and for nothing else',
    async (scope) => {
      const caller = { sandbox: 's', run: 'r', agent: 'a', project: 'p' };
      const name = scope === 'home' ? '' : caller[scope];
      await using it = await stage({ text: 'x' }, [{ scope, name, tokens: 0 }]);
      expect((await it.ask({}, caller)).status).toBe(402);
      const other = await it.ask({}, { sandbox: 's2', run: 'r2', agent: 'a2', project: 'p2' });
      expect(other.status).toBe(scope === 'home' ? 402 : 200);
      expect((await it.ask({}, { sandbox: 'only' })).status).toBe(scope === 'home' ? 402 : 200);
    },
  );

  test('of days begins anew with each day of UTC', async () => {
    let atMs = Date.parse('2026-03-01T23:00:00Z');
    await using it = await stage(
      { text: 'x', usage: { input: 10, output: 990 } },
      [{ scope: 'home', period: 'day', tokens: 1_500 }],
      () => atMs,
    );
    expect((await it.ask()).status).toBe(200);
    expect((await it.ask()).status).toBe(200);
    expect((await it.ask()).status).toBe(402);
    atMs += 2 * 3_600_000;
    expect((await it.ask()).status).toBe(200);
    expect(it.gateway.budgets.list()).toMatchObject([{ period: 'day', spentTokens: 1_000 }]);
  });

  test('and what was spent of it are known to the next gateway, and told no second time', async () => {
    await using it = await stage({ text: 'x', usage: { input: 10, output: 790 } }, [
      { scope: 'home', tokens: 1_000 },
    ]);
    await it.ask();
    const told: unknown[] = [];
    const next = new Budgets(it.gateway.database, { emit: (event) => told.push(event) });
    expect(next.list()).toMatchObject([{ scope: 'home', tokens: 1_000, spentTokens: 800 }]);
    const grant = next.reserve(
      {
        caller: { sandbox: 'dev' },
        inputTokens: 10,
        usualOutput: 100,
        maxOutput: 100,
        leastOutput: 1,
        price: undefined,
      },
      () => 99,
      new AbortController().signal,
    );
    await grant;
    next.settle(99, 20, 0);
    expect(told).toEqual([]);
  });

  test('is waited for while calls that run hold it, and raised budgets let those in', async () => {
    await using it = await stage({ text: 'x', delayMs: 300, usage: { input: 10, output: 100 } }, [
      { scope: 'home', tokens: 5_000 },
    ]);
    const both = await Promise.all([it.ask(), it.ask()]);
    expect(both.map((answer) => answer.status)).toEqual([200, 200]);
    it.gateway.budgets.set({ scope: 'home', tokens: 0 });
    expect((await it.ask()).status).toBe(402);
    it.gateway.budgets.set({ scope: 'home', tokens: 50_000 });
    expect((await it.ask()).status).toBe(200);
  });

  test('of money refuses what has no price', async () => {
    await using it = await stage({ text: 'x' }, [{ scope: 'home', micros: 1_000_000 }]);
    const answer = await it.ask({ model: 'nobody-knows' });
    expect(answer.status).toBe(403);
    expect(it.heard).toEqual([]);
  });

  test.each([
    ['nothing to limit', { scope: 'home' }],
    ['a home with a name', { scope: 'home', name: 'x', tokens: 1 }],
    ['a run without a name', { scope: 'run', tokens: 1 }],
    ['a fraction of a token', { scope: 'home', tokens: 0.5 }],
    ['less than nothing', { scope: 'home', micros: -1 }],
    ['an unknown field', { scope: 'home', tokens: 1, token: 2 }],
  ])('with %s is none', async (_what, budget) => {
    await using it = await stage({ text: 'x' }, []);
    expect(() => it.gateway.budgets.set(budget as BudgetInput)).toThrow(/this is no budget/);
    expect(it.gateway.budgets.list()).toEqual([]);
  });
});

test('costs are summed by anything, and say what has no price', async () => {
  const atMs = Date.parse('2026-03-01T12:00:00Z');
  await using it = await stage({ text: 'x', usage: { input: 10, output: 20 } }, [], () => atMs);
  await it.ask({}, { sandbox: 's1', project: 'p' });
  await it.ask({}, { sandbox: 's2', project: 'p' });
  await it.ask({ model: 'free' }, { sandbox: 's2' });
  const report = costs(it.gateway.database, { by: ['sandbox', 'model'] });
  expect(report.rows).toMatchObject([
    { key: { sandbox: 's1', model: 'small' }, calls: 1, input: 10, output: 20, costMicros: 210 },
    { key: { sandbox: 's2', model: 'small' }, calls: 1, costMicros: 210 },
    { key: { sandbox: 's2', model: 'free' }, calls: 1, costMicros: 0, unpriced: 0 },
  ]);
  expect(report.total).toMatchObject({
    calls: 3,
    running: 0,
    input: 30,
    output: 60,
    costMicros: 420,
    estimated: 0,
  });
  expect(costs(it.gateway.database, { by: ['project'], where: { project: 'p' } }).rows).toMatchObject([
    { key: { project: 'p' }, calls: 2 },
  ]);
  expect(costs(it.gateway.database, { by: ['day'] }).rows).toMatchObject([
    { key: { day: '2026-03-01' }, calls: 3 },
  ]);
  expect(() => costs(it.gateway.database, { by: ['id' as 'run'] })).toThrow(/cannot be asked/);
});
