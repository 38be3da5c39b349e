import type { LineageNode } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

/** Snapshots with forks, each with one more snapshot: as many nodes as asked for. */
const manyNodes = (count: number): LineageNode[] => {
  const base = {
    automatic: false,
    has_memory: false,
    memory_bytes: null,
    memory_used_bytes: null,
    referenced_bytes: 4096,
    used_bytes: 4096,
    merged: [],
  };
  const at = (index: number): string => new Date(1_700_000_000_000 + index * 60_000).toISOString();
  const id = (prefix: string, index: number): string => `${prefix}_${String(index).padStart(26, '0')}`;
  const nodes: LineageNode[] = [
    {
      ...base,
      kind: 'image',
      id: 'img_0',
      name: 'host',
      parent: null,
      grown_from: null,
      state: null,
      created_at: at(0),
    },
  ];
  for (let index = 1; nodes.length < count; index += 1) {
    const from = index < 3 ? 'img_0' : id('sn', Math.floor(index / 3));
    const of = { ...base, parent: from, created_at: at(index) };
    nodes.push({
      ...of,
      kind: 'snapshot',
      id: id('sn', index),
      name: `step-${index}`,
      grown_from: from,
      state: null,
    });
    const state = index % 7 === 0 ? 'failed' : 'running';
    nodes.push({
      ...of,
      kind: 'sandbox',
      id: id('sb', index),
      name: `fork-${index}`,
      grown_from: id('sn', index),
      state,
    });
  }
  return nodes.slice(0, count);
};

describe('branches on the page', () => {
  let daemon: RunningDaemon;
  let browser: TestBrowser;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    browser = await TestBrowser.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'dev' });
    await sandbox.files.write('/srv/app.py', 'import os\n\nanswer = 42\nprint(answer)\n');
    await sandbox.files.write('/srv/shared.conf', 'color = "red"\n');
    await sandbox.snapshot({ name: 'baseline' });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });
  afterEach(() => browser.closeAll());

  const rows = (page: Page) => page.getByRole('table', { name: 'Lineage' }).locator('.rows .row');

  test('are forked from the lineage, compared and merged with a side for each conflict, and the merge is undone', async () => {
    const page = await browser.signedIn(daemon, '/lineage');
    await rows(page).filter({ hasText: 'baseline' }).locator('.name').click();
    await page.getByRole('complementary').getByText('snapshot', { exact: true }).waitFor();
    await page.keyboard.press('f');
    await page.getByLabel('Name').fill('try');
    await page.getByRole('dialog').getByRole('button', { name: 'Fork', exact: true }).click();
    await page.getByRole('heading', { name: 'try' }).waitFor();

    const fork = daemon.client.sandboxes.at('try');
    await fork.files.write('/srv/app.py', 'import os\n\nanswer = 43\nprint(answer)\n');
    await fork.files.write('/srv/shared.conf', 'color = "green"\n');
    await fork.files.write('/srv/data.bin', new Uint8Array([0, 255, 0, 1]));
    await sandbox.files.write('/srv/shared.conf', 'color = "blue"\n');

    await page.goto(`${daemon.url}/lineage`);
    for (const name of ['dev', 'try']) {
      await rows(page)
        .filter({ has: page.getByRole('link', { name, exact: true }) })
        .locator('[role=cell]')
        .nth(2)
        .click();
      await page.keyboard.press('x');
    }
    await expectAccessible(page);
    await page.keyboard.press('d');
    await page.getByRole('heading', { name: '3 paths differ' }).waitFor();
    expect(page.url()).toContain('/compare?from=dev&to=try');
    await page.getByRole('button', { name: /app\.py/ }).click();
    const diff = page.getByRole('region', { name: 'Changes' });
    await diff.locator('td.removed').getByText('answer = 42').waitFor();
    await diff.locator('td.added').getByText('answer = 43').waitFor();
    await diff.locator('.hl-keyword').getByText('import').first().waitFor();
    await expectAccessible(page);
    await page.keyboard.press('v');
    await diff.locator('tr.added').getByText('answer = 43').waitFor();
    await page.getByRole('button', { name: /data\.bin/ }).click();
    await page.getByText('It is not text').waitFor();

    await page.getByRole('button', { name: 'Merge try into dev' }).click();
    const merge = page.getByRole('region', { name: 'Merge' });
    await merge.getByText('both sides changed 1 path').waitFor();
    const go = merge.getByRole('button', { name: 'Merge', exact: true });
    expect(await go.isDisabled()).toBe(true);
    await merge.getByRole('button', { name: '/srv/shared.conf' }).click();
    const [ours, theirs] = [
      merge.getByLabel('dev since they parted'),
      merge.getByLabel('try since they parted'),
    ];
    await ours.getByText('color = "blue"').waitFor();
    await theirs.getByText('color = "green"').waitFor();
    await expectAccessible(page);
    await merge.getByRole('radio', { name: 'try' }).check();
    await go.click();
    await page.getByRole('heading', { name: 'Merged' }).waitFor();
    expect(await sandbox.files.readText('/srv/shared.conf')).toBe('color = "green"\n');
    expect(await sandbox.files.readText('/srv/app.py')).toContain('answer = 43');

    await merge.getByRole('button', { name: 'Undo' }).click();
    await merge.getByText('both sides changed 1 path').waitFor();
    expect(await sandbox.files.readText('/srv/shared.conf')).toBe('color = "blue"\n');
    expect(await sandbox.files.readText('/srv/app.py')).toContain('answer = 42');
    expect(browser.complaints).toEqual([]);
  });

  test('fold when there are many siblings, and say what stands on a snapshot before it is deleted', async () => {
    const { sandboxes } = await sandbox.fork({ count: 16, name_prefix: 'many' });
    const page = await browser.signedIn(daemon, '/lineage');
    await rows(page)
      .getByRole('button', { name: /^1\d forks, 1\d running$/ })
      .click();
    await rows(page).getByText('many-16', { exact: true }).waitFor();
    expect(page.url()).toContain('open=');
    await rows(page).filter({ hasText: 'baseline' }).locator('.name').click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page
      .getByRole('dialog')
      .getByText(/while this stands on it: (snapshot|sandbox) /)
      .waitFor();
    await expectAccessible(page);
    await Promise.all(sandboxes.map((fork) => fork.destroy()));
    expect(browser.complaints).toEqual([]);
  });

  test('are drawn as far as they are seen: 10,000 of them scroll from end to end', async () => {
    const page = await browser.signedIn(daemon);
    const nodes = manyNodes(10_000);
    await page.route('**/v1/lineage', (route) => route.fulfill({ json: { nodes } }));
    await page.goto(`${daemon.url}/lineage`);
    await page.getByText('10,000 nodes').waitFor();
    const list = page.getByRole('table', { name: 'Lineage' });
    const newest = nodes.findLast(({ kind }) => kind === 'sandbox')!;
    await list.getByText(newest.name).waitFor();
    for (let step = 1; step <= 20; step += 1)
      await list.evaluate((element, part) => {
        (element as unknown as { scrollTop: number; scrollHeight: number }).scrollTop =
          (element as unknown as { scrollHeight: number }).scrollHeight * part;
      }, step / 20);
    await list.getByText('host', { exact: true }).waitFor();
    expect(await list.locator('.rows .row').count()).toBeLessThan(80);
    expect(await page.evaluate('document.querySelectorAll("*").length')).toBeLessThan(3_000);
    await page.keyboard.press('/');
    await page.keyboard.type('fork-4321');
    await expect.poll(() => list.locator('.rows .row').count()).toBe(1);
    expect(browser.complaints).toEqual([]);
  });
});
