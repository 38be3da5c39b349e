import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

describe('the page in a browser', () => {
  let daemon: RunningDaemon;
  let browser: TestBrowser;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    browser = await TestBrowser.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'dev', labels: { team: 'core' } });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });
  afterEach(() => browser.closeAll());

  const rows = (page: Page, list: string) => page.getByRole('table', { name: list }).locator('.rows .row');

  test('signs in by a link, once, and shows nothing without', async () => {
    const page = await (await browser.context()).newPage();
    await page.goto(daemon.url);
    await page.getByText('coppice open').waitFor();
    expect(await page.content()).not.toContain('core');
    await expectAccessible(page);
    const { path } = await daemon.client.pageLink();
    await page.goto(daemon.url + path);
    await page.getByRole('heading', { name: '1 running' }).waitFor();
    expect(page.url()).toBe(`${daemon.url}/`);
    expect(await page.evaluate('document.cookie')).toBe('');
    await page.reload();
    await page.getByRole('heading', { name: '1 running' }).waitFor();

    const another = await (await browser.context()).newPage();
    await another.goto(daemon.url + path);
    await another.getByText('has been used').waitFor();

    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByText('You are signed out').waitFor();
    await page.reload();
    await page.getByText('coppice open').waitFor();
    expect(browser.complaints).toEqual([]);
  });

  test('shows what runs as it changes, and does it all from the keyboard', async () => {
    const page = await browser.signedIn(daemon);
    await page.getByRole('heading', { name: '1 running, $0.00 today' }).waitFor();
    expect(await rows(page, 'Sandboxes').allInnerTexts()).toEqual([expect.stringMatching(/^running\s+dev/)]);
    await page.keyboard.press('j');
    await page.keyboard.press('f');
    await page.getByLabel('How many').fill('2');
    await page.getByRole('dialog').getByText('coppice fork dev --count 2').waitFor();
    await page.getByRole('button', { name: 'curl' }).click();
    await page.getByRole('dialog').getByText(`/v1/sandboxes/${sandbox.id}/fork`).waitFor();
    await page.getByLabel('Name').fill('try');
    await page.getByRole('button', { name: 'Fork', exact: true }).click();
    await page.getByRole('heading', { name: '3 running' }).waitFor();
    await page.getByRole('link', { name: 'try-2' }).waitFor();

    await daemon.client.sandboxes.at('try-1').stop();
    await page.getByRole('heading', { name: '2 running, 1 stopped' }).waitFor();
    await page.getByRole('button', { name: /^Stopped/ }).click();
    expect(page.url()).toBe(`${daemon.url}/?state=stopped`);
    await expect.poll(() => rows(page, 'Sandboxes').count()).toBe(1);

    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('Next row').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+k');
    await page.keyboard.type('destroy try-1');
    await page.keyboard.press('Enter');
    const destroy = page.getByRole('dialog').getByRole('button', { name: 'Destroy' });
    expect(await destroy.isDisabled()).toBe(true);
    await page.getByLabel('Type try-1 to go on').fill('try-1');
    await destroy.click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('heading', { name: '2 running' }).waitFor();
    await daemon.client.sandboxes.at('try-2').destroy();
    await page.getByRole('heading', { name: '1 running' }).waitFor();
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });

  const screen = (page: Page) => page.locator('.xterm-accessibility [role=list]');

  test('has a palette that takes what was typed before it was there, and Enter too', async () => {
    const page = await browser.signedIn(daemon);
    await page.getByRole('link', { name: 'dev', exact: true }).waitFor();
    const loaded = Promise.withResolvers<void>();
    await page.route('**/*.js', async (route) => {
      await loaded.promise;
      await route.continue();
    });
    await page.keyboard.press('Control+k');
    await page.keyboard.type('snapshot dev');
    await page.keyboard.press('Enter');
    expect(await page.getByRole('dialog').count()).toBe(0);
    loaded.resolve();
    await page.getByRole('dialog').getByText('coppice snapshot dev').waitFor();
    expect(browser.complaints).toEqual([]);
  });

  test('draws what each sandbox uses: a line that rises with work, and none for a sandbox that stopped', async () => {
    const cpus = 0.5;
    const [busy, idle] = await Promise.all(
      ['busy', 'idle'].map((name) => daemon.client.sandboxes.create({ name, cpus })),
    );
    const page = await browser.signedIn(daemon);
    const lineOf = (name: string) =>
      rows(page, 'Sandboxes')
        .filter({ has: page.getByRole('link', { name, exact: true }) })
        .getByRole('img', { name: /^Processor: \d+ percent of one$/ });
    /** Shares of one processor, the newest last, as they are drawn: 17 is the bottom and 1 the top. */
    const shares = async (name: string): Promise<number[]> => {
      const points = (await lineOf(name).locator('polyline').getAttribute('points')) ?? '';
      return points.split(' ').map((point) => ((17 - Number(point.split(',')[1])) / 16) * cpus);
    };
    await lineOf('busy').waitFor();
    const before = await shares('busy');
    expect(before.length).toBeGreaterThan(1);

    await busy!.jobs.start('while :; do :; done');
    const most = async (): Promise<number> => Math.max(...(await shares('busy')));
    await expect.poll(most, { timeout: 300_000 }).toBeGreaterThan(Math.max(...before) + 0.02);
    // The words say the same as the newest point.
    const said = await lineOf('busy').evaluate((line) => [
      line.getAttribute('aria-label')!,
      line.querySelector('polyline')!.getAttribute('points')!,
    ]);
    const newest = ((17 - Number(/,([\d.]+)$/.exec(said[1]!)![1])) / 16) * cpus;
    const percent = Number(/\d+/.exec(said[0]!)![0]);
    expect(Math.abs(Math.min(percent / 100, cpus) - newest)).toBeLessThan(0.02);
    expect((await shares('idle')).at(-1)).toBeLessThan(await most());

    await busy!.stop({ grace_s: 0 });
    await lineOf('busy').waitFor({ state: 'detached' });
    await lineOf('idle').waitFor();
    await Promise.all([busy!.destroy(), idle!.destroy()]);
    expect(browser.complaints).toEqual([]);
  });

  test('has a terminal that keeps up with 200,000 lines and is the same after a reload', async () => {
    const page = await browser.signedIn(daemon, '/sandboxes/dev');
    await page.locator('.xterm-rows').waitFor();
    await page.keyboard.type("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); echo $i; done; echo do''ne\r");
    await screen(page).getByText('done', { exact: true }).waitFor();
    const numbers = (await screen(page).innerText()).match(/\d{6}(?=\s)/g)!.map(Number);
    expect(numbers.at(-1)).toBe(200_000);
    expect(numbers.length).toBeGreaterThan(10);
    expect(numbers).toEqual(numbers.map((_, index) => 200_001 - numbers.length + index));

    // On the other screen of the terminal, with a colour and the cursor elsewhere.
    await page.keyboard.type(
      "printf '\\033[?1049h\\033[2J\\033[3;5H\\033[31mkept\\033[0m\\033[9;9H'; read wait\r",
    );
    await screen(page).getByText('kept').waitFor();
    await page.reload();
    await screen(page).getByText('kept').waitFor();
    const lines = (await screen(page).locator('[role=listitem]').allInnerTexts()).slice(0, 4);
    expect(lines.map((line) => line.trimEnd())).toEqual(['', '', '    kept', '']);
    expect(await page.locator('.xterm-rows .xterm-fg-1').innerText()).toBe('kept');
    await page.keyboard.type('\r');
    await page.keyboard.type("printf '\\033[?1049l'; echo b''ack\r");
    await screen(page).getByText('back', { exact: true }).waitFor();
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });

  test('browses, edits, uploads and downloads files, and follows jobs', async () => {
    await sandbox.files.write('/srv/app.conf', 'answer = 42\n');
    const page = await browser.signedIn(daemon, '/sandboxes/dev?tab=files&in=/srv');
    await page.getByRole('button', { name: 'app.conf' }).click();
    const content = page.getByLabel('Content of /srv/app.conf');
    await expect.poll(() => content.inputValue()).toBe('answer = 42\n');
    await content.fill('answer = 43\n');
    await page.getByRole('button', { name: 'Save' }).click();
    await expect.poll(() => sandbox.files.readText('/srv/app.conf')).toBe('answer = 43\n');
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Close' }).click();

    const upload = {
      name: 'from-here.bin',
      mimeType: 'application/octet-stream',
      buffer: Buffer.from([0, 1, 2]),
    };
    await page.locator('input[type=file]').setInputFiles(upload);
    await page.getByRole('button', { name: 'from-here.bin' }).waitFor();
    expect([...(await sandbox.files.read('/srv/from-here.bin'))]).toEqual([0, 1, 2]);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page
        .getByRole('row', { name: /app.conf/ })
        .getByRole('button', { name: 'Download' })
        .click(),
    ]);
    expect(download.suggestedFilename()).toBe('app.conf');
    await expectAccessible(page);

    await page.getByRole('button', { name: 'Processes' }).click();
    await page.getByLabel('Command to run in the background').fill("echo fi''rst; while :; do read x; done");
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByRole('button', { name: 'Log', exact: true }).first().click();
    await page.locator('.log').getByText('first').waitFor();
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });

  test('treats names, files, titles and links from a sandbox as text', async () => {
    const evil = '<img src=x onerror="window.hacked=1">';
    const hostile = await daemon.client.sandboxes.create({
      name: 'hostile',
      labels: { note: `${evil}\u202e` },
    });
    await hostile.files.write(`/root/${evil}`, 'x');
    await hostile.files.write('/root/javascript:hacked', 'x');
    const page = await browser.signedIn(daemon);
    await page.getByRole('cell').getByText('\\u202e').waitFor();
    await page.goto(`${daemon.url}/sandboxes/hostile?tab=files&in=/root`);
    await page.getByRole('button', { name: evil }).waitFor();
    await page.getByRole('button', { name: 'Terminal' }).click();
    await page.locator('.xterm-rows').waitFor();
    const sequence = (text: string): string => `printf '\\033]${text}\\007'`;
    await page.keyboard.type(
      `${sequence(`2;${evil.replaceAll('"', '')}`)}; ${sequence('52;c;aGFja2Vk')}; echo s''et\r`,
    );
    await screen(page).getByText('set', { exact: true }).waitFor();
    await page.getByText('<img src=x onerror=window.hacked=1>', { exact: true }).waitFor();
    expect(await page.title()).toBe('Coppice');
    // A link that says one thing and leads elsewhere is shown whole before it is opened; a script is not opened at all.
    await page.keyboard.type(
      "printf '\\033]8;;javascript:hacked()\\007script\\033]8;;\\007 \\033]8;;http://evil.example/\\007bank\\033]8;;\\007\\n'\r",
    );
    await screen(page).getByText('script bank').waitFor();
    const clickOn = async (word: string): Promise<void> => {
      const { x, y } = (await page.evaluate(`(() => {
        const row = [...document.querySelectorAll('.xterm-rows > div')].find((found) => found.innerText.startsWith('script bank'));
        const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
        let node = walker.nextNode();
        while (!node.data.includes('${word}')) node = walker.nextNode();
        const range = document.createRange();
        range.setStart(node, node.data.indexOf('${word}'));
        range.setEnd(node, node.data.indexOf('${word}') + 4);
        const { x, y, width, height } = range.getBoundingClientRect();
        return { x: x + width / 2, y: y + height / 2 };
      })()`)) as { x: number; y: number };
      await page.mouse.move(x - 3, y);
      await page.mouse.move(x, y);
      await page.mouse.click(x, y);
    };
    await clickOn('script');
    await clickOn('bank');
    await page.getByRole('dialog').getByText('http://evil.example/').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    expect(await page.getByRole('dialog').count()).toBe(0);
    expect(page.context().pages()).toHaveLength(1);
    expect(browser.complaints).toEqual([]);
    await hostile.destroy();
  });

  test('says which directories of the host a sandbox shares, and that no comparison has them', async () => {
    const directory = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-shared-')));
    const mounts = [{ host_path: directory, guest_path: '/data', read_only: true }];
    try {
      await using sharing = await daemon.client.sandboxes.create({ name: 'sharing', mounts });
      const { id } = await sharing.snapshot();
      await sharing.files.write('/root/new', 'x');
      const page = await browser.signedIn(daemon, '/sandboxes/sharing');
      const facts = page.getByRole('complementary', { name: 'About this sandbox' });
      await facts.getByText(directory).waitFor();
      await facts.getByText('read-only, not part of snapshots, forks, diffs and merges').waitFor();
      await page.goto(`${daemon.url}/compare?from=${id}&to=sharing`);
      await page.getByText('a directory of the host is mounted there: /data').waitFor();
      await expectAccessible(page);
      expect(browser.complaints).toEqual([]);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  test('shows a token of one sandbox that sandbox and nothing else', async () => {
    const other = await daemon.client.sandboxes.create({ name: 'other' });
    using client = new Coppice({ url: daemon.url, token: other.token! }, {});
    const page = await (await browser.context()).newPage();
    await page.goto(daemon.url + (await client.pageLink()).path);
    await page.getByRole('heading', { name: 'other' }).waitFor();
    await page.locator('.xterm-rows').waitFor();
    await expect
      .poll(() => page.getByRole('navigation', { name: 'Pages' }).getByRole('link').count())
      .toBe(0);
    await page.goto(`${daemon.url}/sandboxes/dev`);
    await page.getByRole('heading', { name: 'other' }).waitFor();
    expect(await page.content()).not.toContain(sandbox.id);
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
    await other.destroy();
  });

  test('goes on after a lost connection without a gap and without a repeat', async () => {
    const page = await browser.signedIn(daemon, '/events');
    await rows(page, 'Events').first().waitFor();
    const shown = async (): Promise<string[]> =>
      (await rows(page, 'Events').locator('[role=cell]:nth-child(2)').allInnerTexts()).toReversed();
    const happened = async (): Promise<string[]> =>
      (await daemon.client.events.list()).events.slice(-20).map(({ type }) => type);
    await page.getByRole('status').getByText('Live').waitFor();
    const { port } = new URL(daemon.url);
    await daemon.stop();
    await page.getByRole('status').getByText('Reconnecting').waitFor();
    await daemon.restart({ args: ['--port', port] });
    await sandbox.snapshot({ name: 'while-away' });
    await page.getByRole('status').getByText('Live').waitFor();
    await sandbox.snapshot({ name: 'after' });
    await expect.poll(async () => (await shown()).slice(-20)).toEqual(await happened());

    await page.getByRole('button', { name: 'Pause' }).click();
    const before = await shown();
    await sandbox.snapshot({ name: 'while-paused' });
    await page.getByRole('button', { name: 'Go on, 1 new one' }).waitFor();
    expect(await shown()).toEqual(before);
    await page.getByRole('button', { name: /^Go on/ }).click();
    await expect.poll(async () => (await shown()).slice(-20)).toEqual(await happened());
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });
});
