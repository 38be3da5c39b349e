import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

let daemon: RunningDaemon;
let browser: TestBrowser;

const call = `curl -sS -o /dev/null -d '{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"`;

/** A home with something on every page; a file answers for the model. */
beforeAll(async () => {
  daemon = await RunningDaemon.start({ programs: ['curl'] });
  browser = await TestBrowser.start();
  const script = { steps: [{ text: 'ok', usage: { input: 100_000, output: 100_000 } }] };
  writeFileSync(join(daemon.home, 'demo.json'), JSON.stringify(script));
  const models = { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] };
  writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
  const { client } = daemon;
  const dev = await client.sandboxes.create({ name: 'dev', network: { allow: ['models'] } });
  await dev.exec(
    'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf',
  );
  await client.budgets.set({ scope: 'home', period: 'day', micros: 10_000_000 });
  await dev.exec(call);
  await dev.snapshot({ name: 'baseline' });
  const [fork] = (await dev.fork({ name: 'a-fork-with-quite-a-long-name' })).sandboxes;
  await fork!.exec('echo change > /workspace/file-with-a-name-that-is-longer-than-a-phone-is-wide.txt');
  await client.runs.start({ name: 'busy', task: 'count to a hundred', command: 'seq 1 100; sleep 600' });
  const { id } = await client.projects.create({ name: 'Leads', cap_usd: 20 });
  await client.projects.report(id, { name: 'revenue', value: 12.5 });
});
afterAll(async () => {
  await browser?.[Symbol.asyncDispose]();
  await daemon?.[Symbol.asyncDispose]();
});

/** Nothing is cut off at the side: a page that is wider than the screen would scroll. */
const expectToFit = async (page: Page): Promise<void> => {
  const tooWide = await page.evaluate(() => {
    const { clientWidth, scrollWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const elements = [...document.querySelectorAll('body *')]
      .filter((element) => element.getBoundingClientRect().right > clientWidth)
      .map((element) => `${element.tagName}.${element.className}`);
    // The width itself too: whatever makes the page wide, the list is not empty.
    return [`${scrollWidth} px`, ...elements];
  });
  expect(tooWide, page.url()).toEqual([]);
};

const pages = [
  ['/', 'running'],
  ['/lineage', 'baseline'],
  ['/compare?from=dev&to=a-fork-with-quite-a-long-name', 'file-with-a-name'],
  ['/runs', 'busy'],
  ['/projects', 'Leads'],
  ['/events', 'sandbox.created'],
  ['/costs', 'to models'],
  ['/sandboxes/dev', 'dev'],
  ['/sandboxes/dev?tab=files', 'workspace'],
] as const;

test.each(pages)('%s fits a phone and can be used with it by everybody', async (path, text) => {
  const context = await browser.context({ viewport: { width: 390, height: 844 }, hasTouch: true });
  const page = await browser.signedIn(daemon, path, context);
  await page.getByText(text).first().waitFor();
  await expectToFit(page);
  await expectAccessible(page);
  expect(browser.complaints).toEqual([]);
  await context.close();
});

test('costs are shown by what caused them, beside the budget that holds them', async () => {
  const { total } = await daemon.client.costs({ by: 'sandbox' });
  expect(total.cost_micros).toBeGreaterThan(0);
  const spent = `$${(total.cost_micros / 1_000_000).toFixed(2)}`;
  const page = await browser.signedIn(daemon);
  await page.getByRole('heading', { name: `${spent} of $10.00 today` }).waitFor();
  await page.getByRole('link', { name: 'Costs' }).click();
  await page.getByRole('heading', { name: `${spent} for 1 call to models` }).waitFor();
  await page.getByRole('region', { name: 'Budgets' }).getByText(`${spent} of $10.00`).waitFor();
  const costs = page.getByRole('table', { name: 'Costs' });
  const rows = costs.locator('.rows .row');
  await rows.filter({ hasText: 'dev' }).filter({ hasText: '100,000' }).waitFor();
  await page.getByRole('button', { name: 'By model' }).click();
  await rows.filter({ hasText: 'claude-sonnet-4-5' }).waitFor();
  expect(page.url()).toContain('by=model');
  await expectAccessible(page);
  expect(browser.complaints).toEqual([]);
});
