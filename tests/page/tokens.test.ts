import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

const call = `curl -sS -o /dev/null -d '{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"`;
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

describe('the page of a token', () => {
  let daemon: RunningDaemon;
  let browser: TestBrowser;
  let web: Sandbox;
  let shop: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ programs: ['curl'] });
    browser = await TestBrowser.start();
    const script = { steps: [{ text: 'ok', usage: { input: 100_000, output: 100_000 } }] };
    writeFileSync(join(daemon.home, 'demo.json'), JSON.stringify(script));
    const models = { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] };
    writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
    const make = async (project: string, name: string, calls: number): Promise<Sandbox> => {
      const made = await daemon.client.sandboxes.create({ name, project, network: { allow: ['models'] } });
      await made.exec(resolver);
      for (let index = 0; index < calls; index += 1) await made.exec(call);
      return made;
    };
    web = await make('web', 'of-web', 1);
    shop = await make('shop', 'of-shop', 2);
    await daemon.client.budgets.set({ scope: 'project', name: 'web', period: 'day', micros: 10_000_000 });
    await eventually(
      'the calls are settled',
      async () => (await daemon.client.events.list({ type: 'model.settled' })).events.length === 3,
    );
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  const open = async (token: string): Promise<Page> => {
    using client = new Coppice({ url: daemon.url, token }, {});
    const page = await (await browser.context()).newPage();
    await page.goto(daemon.url + (await client.pageLink()).path);
    await page.getByRole('status').getByText('Live').waitFor();
    return page;
  };
  const costOf = async (sandbox: Sandbox): Promise<string> => {
    const { total } = await daemon.client.costs({ sandbox: sandbox.id });
    expect(total.cost_micros).toBeGreaterThan(0);
    return `$${(total.cost_micros / 1_000_000).toFixed(2)}`;
  };
  const expectNothingOf = async (page: Page, other: Sandbox): Promise<void> => {
    const shown = await page.content();
    for (const secret of [other.id, 'of-shop']) expect(shown).not.toContain(secret);
  };

  test('of a project shows the sandboxes, events and costs of that project as they happen, and of no other', async () => {
    const { secret } = await daemon.client.tokens.create({ name: 'web', scope: 'project:web' });
    const page = await open(secret);
    const cost = await costOf(web);
    await page.getByRole('heading', { name: `1 running, ${cost} of $10.00 today` }).waitFor();
    await expectNothingOf(page, shop);
    await page.getByRole('link', { name: 'Costs' }).click();
    await page.getByRole('heading', { name: `${cost} for 1 call to models` }).waitFor();
    await page.getByRole('region', { name: 'Budgets' }).getByText(`${cost} of $10.00`).waitFor();
    await expectNothingOf(page, shop);
    for (const [by, text] of [
      ['By project', 'web'],
      ['By agent', 'nobody in particular'],
    ] as const) {
      await page.getByRole('button', { name: by }).click();
      await page.getByRole('table', { name: 'Costs' }).getByText(text, { exact: true }).waitFor();
    }
    await expectAccessible(page);
    await page.getByRole('link', { name: 'Events' }).click();
    const events = page.getByRole('table', { name: 'Events' });
    await events.getByText('model.settled').first().waitFor();
    await shop.snapshot({ name: 'kept-of-shop' });
    await web.snapshot({ name: 'kept-of-web' });
    await events.getByText('kept-of-web').waitFor();
    await expectNothingOf(page, shop);
    await expectAccessible(page);
    for (const project of ['web', 'shop'])
      await daemon.client.runs.start({
        name: `run-of-${project}`,
        project,
        task: 'wait',
        command: 'sleep 600',
      });
    await page.getByRole('link', { name: 'Runs' }).click();
    await page.getByRole('link', { name: 'run-of-web' }).click();
    await page.getByLabel('Message to the agent').fill('hurry up');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('list', { name: 'What the agent did' }).getByText('hurry up').waitFor();
    await page.getByRole('link', { name: 'Runs' }).click();
    await page.getByRole('heading', { name: '1 run', exact: true }).waitFor();
    await expectNothingOf(page, shop);
    await page.getByRole('link', { name: 'Lineage' }).click();
    await page.getByText('kept-of-web').waitFor();
    await expectNothingOf(page, shop);
    expect(browser.complaints).toEqual([]);
  });

  test('of a run shows that run as it goes on, and changes nothing', async () => {
    const start = (name: string, command: string) => daemon.client.runs.start({ name, task: name, command });
    const mine = await start('my-run', 'echo $COPPICE_RUN_TOKEN; sleep 600');
    const other = await start('of-shop-run', 'sleep 600');
    let token = '';
    await eventually('the program says its token', async () => {
      const { events } = await daemon.client.runs.listEvents(mine.id);
      token = /cpt_[\w-]+/.exec(JSON.stringify(events))?.[0] ?? '';
      return token !== '';
    });
    const page = await open(token);
    await page.getByRole('heading', { name: 'my-run' }).waitFor();
    await daemon.client.runs.tell(mine.id, 'hurry up');
    await page.getByRole('list', { name: 'What the agent did' }).getByText('hurry up').waitFor();
    await expectAccessible(page);
    for (const name of ['Stop', 'Pause', 'Interrupt', 'Send', 'Rewind to step 1'])
      expect(await page.getByRole('button', { name, exact: true }).count(), name).toBe(0);
    expect(await page.getByRole('navigation').getByRole('link').count()).toBe(0);
    // Another address leads to the same run.
    for (const path of [`/runs/${other.id}`, '/lineage', '/runs', '/']) {
      await page.goto(daemon.url + path);
      await page.getByRole('heading', { name: 'my-run' }).waitFor();
      expect(await page.getByText('does not cover').count()).toBe(0);
      await expectNothingOf(page, shop);
      expect(await page.content()).not.toContain(other.id);
    }
    expect(browser.complaints).toEqual([]);
  });

  test('of a sandbox shows its own events and what its own calls cost', async () => {
    const page = await open(web.token!);
    await page.getByRole('heading', { name: 'of-web' }).waitFor();
    const facts = page.getByRole('complementary', { name: 'About this sandbox' });
    await facts.getByText(await costOf(web), { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Events', exact: true }).click();
    const events = page.getByRole('table', { name: 'Events of this sandbox' });
    await events.getByText('sandbox.created').waitFor();
    await shop.snapshot({ name: 'again-of-shop' });
    await web.snapshot({ name: 'again-of-web' });
    await events.getByText('again-of-web').waitFor();
    await expectNothingOf(page, shop);
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });
});
