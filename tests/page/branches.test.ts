import { join } from 'node:path';
import { DatabaseSync, type SQLOutputValue } from 'node:sqlite';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

/**
 * Adds rows to the daemon's own tables, as many as its lineage lacks: snapshots with forks, each with one more snapshot. They have no disks,
 * which nobody looks at here. The daemon reads its tables for each call.
 */
const growTo = async (daemon: RunningDaemon, total: number): Promise<void> => {
  const { client, home } = daemon;
  const mother = await client.sandboxes.create({ name: 'mother' });
  const { id: first } = await mother.snapshot({ name: 'first' });
  await mother.stop({ grace_s: 0 });
  const missing = total - (await client.lineage()).length;
  using database = new DatabaseSync(join(home, 'coppice.db'));
  const rowOf = (table: string, id: string) =>
    database.prepare(`SELECT * FROM ${table} WHERE id = ?`).get(id)!;
  const [sandbox, snapshot] = [rowOf('sandboxes', mother.id), rowOf('snapshots', first)];
  const add = (table: string, row: Record<string, SQLOutputValue>): void => {
    const names = Object.keys(row);
    database
      .prepare(`INSERT INTO ${table} (${names.join()}) VALUES (${names.map(() => '?').join()})`)
      .run(...Object.values(row));
  };
  const idOf = (prefix: string, index: number): string => `${prefix}_${String(index).padStart(26, '0')}`;
  database.exec('BEGIN IMMEDIATE');
  for (let added = 0, index = 1; added < missing; index += 1) {
    const from = index < 3 ? first : idOf('sn', Math.floor(index / 3));
    const created_at_ms = Number(snapshot.created_at_ms) + index;
    const name = `step-${index}`;
    add('snapshots', { ...snapshot, id: idOf('sn', index), name, parent_id: from, created_at_ms });
    added += 1;
    if (added === missing) break;
    add('sandboxes', {
      ...sandbox,
      id: idOf('sb', index),
      name: `fork-${index}`,
      state: index % 7 === 0 ? 'failed' : 'stopped',
      parent_snapshot_id: idOf('sn', index),
      base_snapshot_id: idOf('sn', index),
      created_at_ms,
    });
    added += 1;
  }
  database.exec('COMMIT');
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

  test('are merged with another side for each of two conflicts, and the merge is undone', async () => {
    const into = await daemon.client.sandboxes.create({ name: 'two-sides' });
    const write = async (of: Sandbox, text: string): Promise<void> => {
      for (const name of ['keep', 'take']) await of.files.write(`/srv/${name}.conf`, `${name} = "${text}"\n`);
    };
    await write(into, 'base');
    const {
      sandboxes: [from],
    } = await into.fork({ name: 'other-side' });
    await write(into, 'ours');
    await write(from!, 'theirs');
    const contents = () =>
      Promise.all(['keep', 'take'].map((name) => into.files.readText(`/srv/${name}.conf`)));

    const page = await browser.signedIn(daemon, '/compare?from=two-sides&to=other-side&do=merge');
    const merge = page.getByRole('region', { name: 'Merge' });
    await merge.getByText('both sides changed 2 paths').waitFor();
    const go = merge.getByRole('button', { name: 'Merge', exact: true });
    const choose = (name: string, side: string): Promise<void> =>
      merge
        .getByRole('row')
        .filter({ has: page.getByRole('button', { name: `/srv/${name}.conf` }) })
        .getByRole('radio', { name: side })
        .check();
    await choose('keep', 'two-sides');
    // One of the two has no side yet.
    expect(await go.isDisabled()).toBe(true);
    await choose('take', 'other-side');
    await page
      .getByRole('button', { name: /take\.conf/ })
      .last()
      .click();
    await page.locator('td.added').getByText('take = "theirs"').waitFor();
    await go.click();
    await page.getByRole('heading', { name: 'Merged' }).waitFor();
    expect(await contents()).toEqual(['keep = "ours"\n', 'take = "theirs"\n']);
    // What is compared below is what the merge left.
    await page.getByRole('heading', { name: '1 path differs' }).waitFor();
    await page.getByText('It is the same on both sides.').waitFor();

    await merge.getByRole('button', { name: 'Undo' }).click();
    await merge.getByText('both sides changed 2 paths').waitFor();
    expect(await merge.getByRole('radio', { checked: true }).count()).toBe(0);
    expect(await contents()).toEqual(['keep = "ours"\n', 'take = "ours"\n']);
    await page.getByRole('heading', { name: '2 paths differ' }).waitFor();
    await page.locator('td.added').getByText('take = "theirs"').waitFor();
    await Promise.all([from!.destroy(), into.destroy()]);
    expect(browser.complaints).toEqual([]);
  });

  test('are compared with large and binary files among the changes, which are named and not loaded', async () => {
    const mib = 1024 ** 2;
    const lines = (word: string, sizeBytes: number): string =>
      `${word}\n`.repeat(sizeBytes / (word.length + 1));
    const write = async (of: Sandbox, word: string, blobBytes: number): Promise<void> => {
      await of.files.write('/srv/huge.log', lines(word, 5 * mib));
      await of.files.write('/srv/long.txt', lines(word, 1.5 * mib));
      await of.files.write('/srv/wide.json', `{"a":"${word.repeat(mib / word.length)}"}\n`);
      await of.files.write('/srv/blob.bin', new Uint8Array(blobBytes));
      await of.files.write('/srv/small.txt', `${word}\n`);
    };
    const before = await daemon.client.sandboxes.create({ name: 'slim' });
    await write(before, 'before', 1_000_000);
    const {
      sandboxes: [after],
    } = await before.fork({ name: 'fat' });
    await write(after!, 'afterwards', 2_000_000);

    const page = await browser.signedIn(daemon);
    const sizes: Promise<number>[] = [];
    page.on('response', (response) => {
      if (response.url().includes('/v1/diff'))
        sizes.push(
          response.body().then(
            ({ length }) => length,
            // The page went on to another file before it came.
            () => 0,
          ),
        );
    });
    await page.goto(`${daemon.url}/compare?from=slim&to=fat&path=/srv/huge.log`);
    await page.getByRole('heading', { name: '5 paths differ' }).waitFor();
    await page
      .getByText('It is too large to compare here. It had 5.2 MB before and has 5.2 MB after.')
      .waitFor();
    await page.getByRole('button', { name: /wide\.json/ }).click();
    await page
      .getByText('It is too large to compare here. It had 1.0 MB before and has 1.0 MB after.')
      .waitFor();
    await page.getByRole('button', { name: /blob\.bin/ }).click();
    await page.getByText('It is not text. It had 1.0 MB before and has 2.0 MB after.').waitFor();

    await expectAccessible(page);
    await page.getByRole('button', { name: /long\.txt/ }).click();
    await page.getByText('This is the beginning of what differs.').waitFor();
    const elements = (): Promise<number> => page.evaluate('document.querySelectorAll("*").length');
    expect(await elements()).toBeLessThan(15_000);
    await page.getByRole('button', { name: /^Show [\d,]+ more lines$/ }).waitFor();
    await page.getByRole('button', { name: /small\.txt/ }).click();
    await page.locator('td.added').getByText('afterwards', { exact: true }).waitFor();
    await expect.poll(() => page.locator('td.added').count()).toBe(1);
    const loaded = await Promise.all(sizes);
    // One for each file; the list may have come before.
    expect(loaded.length).toBeGreaterThanOrEqual(5);
    for (const length of loaded) expect(length).toBeLessThan(700_000);

    // Whoever asks for the diff itself gets as much as they ask for, in whole lines.
    const long = (options = {}) => daemon.client.diffFile('slim', 'fat', '/srv/long.txt', options);
    const [all, cut] = [await long(), await long({ max_bytes: 1_000 })];
    expect(all.truncated).toBe(false);
    expect(cut.truncated).toBe(true);
    expect(cut.unified.length).toBeLessThanOrEqual(1_000);
    expect(cut.unified).toMatch(/\n-before\n$/);
    expect(all.unified.startsWith(cut.unified)).toBe(true);
    await Promise.all([after!.destroy(), before.destroy()]);
    expect(browser.complaints).toEqual([]);
  });

  test('fold when there are many siblings, and are named before a snapshot that they stand on is deleted', async () => {
    const { sandboxes } = await sandbox.fork({ count: 16, name_prefix: 'many' });
    const page = await browser.signedIn(daemon, '/lineage');
    await rows(page)
      .getByRole('button', { name: /^1\d forks, 1\d running$/ })
      .click();
    await rows(page).getByText('many-16', { exact: true }).waitFor();
    expect(page.url()).toContain('open=');
    await rows(page).filter({ hasText: 'baseline' }).locator('.name').click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByText('Deletes what stands on it first: ').waitFor();
    await expectAccessible(page);
    await Promise.all(sandboxes.map((fork) => fork.destroy()));
    expect(browser.complaints).toEqual([]);
  });

  test('are drawn as far as they are seen: 10,000 of them scroll from end to end', async () => {
    await using many = await RunningDaemon.start();
    await growTo(many, 10_000);
    const page = await browser.signedIn(many, '/lineage');
    await page.getByText('10,000 nodes').waitFor();
    const list = page.getByRole('table', { name: 'Lineage' });
    await list
      .getByText(/^fork-\d+$/)
      .first()
      .waitFor();
    const total = Number(await list.getAttribute('aria-rowcount')) - 1;
    expect(total).toBeGreaterThan(9_000);
    /** What is drawn at that part of the way: which rows, and whether they fill what can be seen. */
    const drawnAt = (part: number) =>
      list.evaluate(async (element, share) => {
        element.scrollTop = (element.scrollHeight - element.clientHeight) * share;
        const rows = () => [...element.querySelectorAll('.rows .row')];
        const fills = (): boolean => {
          const seen = element.getBoundingClientRect();
          const boxes = rows().map((row) => row.getBoundingClientRect());
          const top = element.querySelector('.head')!.getBoundingClientRect().bottom;
          return (
            boxes.some((box) => box.top <= top + 1) && boxes.some((box) => box.bottom >= seen.bottom - 1)
          );
        };
        while (!fills()) await new Promise(requestAnimationFrame);
        return rows().map((row) => Number(row.getAttribute('aria-rowindex')) - 2);
      }, part);
    for (let step = 0; step <= 20; step += 1) {
      const drawn = await drawnAt(step / 20);
      expect(drawn.length, `at ${step} of 20`).toBeGreaterThan(10);
      expect(drawn.length, `at ${step} of 20`).toBeLessThan(80);
      // One after the other, around where the list was scrolled to.
      expect(drawn).toEqual(drawn.map((_, index) => drawn[0]! + index));
      expect(drawn[0]! / total).toBeLessThanOrEqual(step / 20);
      expect((drawn.at(-1)! + 1) / total).toBeGreaterThanOrEqual(step / 20);
    }
    const image = (await many.client.lineage()).find(({ kind }) => kind === 'image')!;
    await list.getByText(image.name, { exact: true }).waitFor();
    expect(await page.evaluate('document.querySelectorAll("*").length')).toBeLessThan(3_000);
    await page.keyboard.press('/');
    await page.keyboard.type('fork-4321');
    await expect.poll(() => list.locator('.rows .row').count()).toBe(1);
    expect(browser.complaints).toEqual([]);
  });

  test('show a restore: what it went back to, and a line to what was there before', async () => {
    const { name } = await sandbox.inspect();
    await sandbox.files.write('/srv/later.txt', 'later\n');
    await sandbox.snapshot({ name: 'later' });
    await sandbox.files.write('/srv/unkept.txt', 'unkept\n');
    const { undo_snapshot_id: left } = await sandbox.restore('baseline');
    const page = await browser.signedIn(daemon, '/lineage');
    const row = rows(page).filter({ has: page.getByRole('link', { name, exact: true }) });
    await row.getByText('restored to baseline').waitFor();
    expect(await row.locator('path.restore').count()).toBe(1);
    await row.locator('[role=cell]').nth(2).click();
    const chosen = page.getByRole('complementary', { name: 'Chosen' });
    await chosen.getByText(/^to baseline, \d+ s ago/).waitFor();
    // What was there before is a row too, though the daemon took it for itself.
    const [undo] = (await daemon.client.lineage()).filter(({ id }) => id === left);
    await chosen.getByText(`${undo!.name} keeps what was there before`).waitFor();
    await rows(page).getByText(undo!.name, { exact: true }).waitFor();
    await expectAccessible(page);

    // The next snapshot is of the state that the restore began.
    const after = await sandbox.snapshot({ name: 'after-restore' });
    await rows(page).filter({ hasText: 'after-restore' }).getByText('restored to baseline').waitFor();
    await expect.poll(() => row.getByText('restored to').count()).toBe(0);
    const nodes = await daemon.client.lineage();
    expect(nodes.find(({ id }) => id === after.id)?.restored).toMatchObject({ left });
    expect(nodes.find(({ id }) => id === sandbox.id)?.restored).toBeNull();
    expect(browser.complaints).toEqual([]);
  });

  test('go with what stands on them, which is named first', async () => {
    const base = await sandbox.snapshot({ name: 'doomed' });
    const {
      sandboxes: [child],
    } = await daemon.client.snapshots.fork(base.id, { name: 'child' });
    await child!.snapshot({ name: 'of-child' });
    const {
      sandboxes: [grandchild],
    } = await child!.fork({ name: 'grandchild' });
    const page = await browser.signedIn(daemon, '/lineage');
    await rows(page).filter({ hasText: 'doomed' }).locator('.name').click();
    await page.getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Deletes what stands on it first: grandchild, child').waitFor();
    const texts: string[] = [];
    for (const way of ['CLI', 'curl', 'SDK']) {
      await dialog.getByRole('button', { name: way, exact: true }).click();
      texts.push(await dialog.locator('pre').innerText());
    }
    expect(texts[0]).toBe(
      `coppice rm grandchild --snapshots\ncoppice rm child --snapshots\ncoppice rm ${base.id}`,
    );
    expect(texts[1]).toContain(`/v1/sandboxes/${child!.id}?snapshots=delete`);
    expect(texts[2]).toContain(`await coppice.snapshots.delete('${base.id}');`);
    await expectAccessible(page);
    await dialog.getByLabel('Type doomed to go on').fill('doomed');
    await dialog.getByRole('button', { name: 'Delete it and 2 sandboxes' }).click();
    await dialog.waitFor({ state: 'detached' });
    await expect.poll(() => rows(page).filter({ hasText: 'doomed' }).count()).toBe(0);
    const left = (await daemon.client.lineage()).map(({ id }) => id);
    for (const id of [base.id, child!.id, grandchild!.id]) expect(left).not.toContain(id);
    expect(left).toContain(sandbox.id);
    expect(browser.complaints).toEqual([]);
  });
});
