import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));
const run = promisify(execFile);

/** Answers every request with one line. Numbers instead of modules, which are not there. */
const server = `
socket(my $server, 2, 1, 0) or die; setsockopt($server, 1, 2, pack("l", 1));
bind($server, pack("S n C4 x8", 2, 8080, 127, 0, 0, 1)) or die; listen($server, 16) or die;
while (accept(my $client, $server)) {
  sysread($client, my $asked, 4096);
  syswrite($client, "HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: 17\\r\\nConnection: close\\r\\n\\r\\nhello from inside");
  close $client }`;

describe('what is done on the page', () => {
  let daemon: RunningDaemon;
  let browser: TestBrowser;
  let dev: Sandbox;

  const rows = (page: Page, list: string) => page.getByRole('table', { name: list }).locator('.rows .row');

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ programs: ['perl'] });
    browser = await TestBrowser.start();
    dev = daemon.client.sandboxes.at('dev');
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });
  afterEach(() => browser.closeAll());

  /** A page that may write to the clipboard, as a person's browser lets it. */
  const withClipboard = async (path = '/'): Promise<Page> => {
    const context = await browser.context({ permissions: ['clipboard-read', 'clipboard-write'] });
    return browser.signedIn(daemon, path, context);
  };
  const copied = (page: Page): Promise<string> => page.evaluate('navigator.clipboard.readText()');

  test('begins with three commands to copy where there is no sandbox', async () => {
    const page = await withClipboard();
    await page.getByRole('heading', { name: 'No sandbox yet' }).waitFor();
    const commands = page.locator('.empty .command');
    expect(await commands.locator('code').allInnerTexts()).toEqual([
      'coppice create dev',
      "coppice exec dev -- sh -c 'echo hello > /root/hello'",
      'coppice fork dev try',
    ]);
    await expectAccessible(page);
    const texts = await commands.locator('code').allInnerTexts();
    for (const text of texts) {
      await commands.filter({ hasText: text }).getByRole('button').click();
      await expect.poll(() => copied(page)).toBe(text);
    }
    for (const text of texts)
      await run('sh', ['-c', text.replace('coppice', `"${process.execPath}" "${cli}"`)], {
        env: { ...process.env, COPPICE_HOME: daemon.home },
      });
    await page.getByRole('heading', { name: '2 running' }).waitFor();
    expect(await daemon.client.sandboxes.at('try').files.readText('/root/hello')).toBe('hello\n');
    expect(browser.complaints).toEqual([]);
  });

  test('is copied as a command, as a call and as a line of a program, and each does the same', async () => {
    const page = await withClipboard();
    await rows(page, 'Sandboxes')
      .filter({ has: page.getByRole('link', { name: 'dev', exact: true }) })
      .locator('[role=cell]')
      .nth(2)
      .click();
    await page.keyboard.press('f');
    const dialog = page.getByRole('dialog');
    const env = {
      ...process.env,
      COPPICE_HOME: daemon.home,
      COPPICE_URL: daemon.url,
      COPPICE_TOKEN: daemon.token,
    };
    const ways = {
      CLI: (text: string) => ['sh', '-c', text.replace(/^coppice/, `"${process.execPath}" "${cli}"`)],
      curl: (text: string) => ['sh', '-c', text.replace(/^curl/, 'curl -sS --fail')],
      SDK: (text: string) => [
        process.execPath,
        '--input-type=module',
        '-e',
        `import { Coppice } from '@coppice/sdk';
         const coppice = new Coppice({ url: process.env.COPPICE_URL, token: process.env.COPPICE_TOKEN });
         ${text}
         coppice.close();`,
      ],
    } as const;
    for (const [way, command] of Object.entries(ways)) {
      const name = `by-${way.toLowerCase()}`;
      await dialog.getByLabel('Name').fill(name);
      await dialog.getByRole('button', { name: way, exact: true }).click();
      await dialog.getByRole('button', { name: 'Copy' }).click();
      await expect.poll(() => copied(page)).toContain(name);
      const [program, ...args] = command(await copied(page)) as [string, ...string[]];
      await run(program, args, { env, cwd: root });
      const { parent } = await daemon.client.sandboxes.at(name).inspect();
      expect(parent?.sandbox_id, way).toBe((await dev.inspect()).id);
      await daemon.client.sandboxes.at(name).destroy();
    }
    expect(browser.complaints).toEqual([]);
  });

  test('is done without a mouse: j, k, Enter, s, d, and a palette that finds and does', async () => {
    const page = await browser.signedIn(daemon);
    await rows(page, 'Sandboxes').first().waitFor();
    // A key does nothing where the rows are not there yet, so each is waited for before the next.
    const selects = async (key: string, name: string): Promise<void> => {
      await page.keyboard.press(key);
      await expect
        .poll(() => page.locator('.rows .row.selected .name a').allInnerTexts(), { timeout: 20_000 })
        .toEqual([name]);
    };
    await selects('j', 'try');
    await selects('j', 'dev');
    await selects('k', 'try');
    await page.keyboard.press('d');
    await page.getByRole('heading', { name: 'Nothing differs' }).waitFor();
    await page.keyboard.press('o');
    await rows(page, 'Sandboxes').first().waitFor();
    await selects('j', 'try');
    await selects('j', 'dev');
    const name = `by-key-${Date.now()}`;
    await page.keyboard.press('s');
    await page.getByRole('dialog').getByLabel('Name').fill(name);
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect((await dev.snapshots()).map((snapshot) => snapshot.name)).toContain(name);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'dev' }).waitFor();

    // Not in the terminal, which has the keyboard now.
    await page.getByRole('button', { name: 'Snapshots' }).click();
    for (const [typed, found] of [
      ['try', 'try'],
      ['lineage', 'Lineage'],
    ] as const) {
      await page.keyboard.press('Control+k');
      await page.getByRole('dialog').waitFor();
      await page.keyboard.type(typed);
      await expect.poll(() => page.getByRole('option').first().innerText()).toContain(found);
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: found, exact: true }).waitFor();
    }
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('nothing is called this');
    await page.getByText('Nothing is called that.').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('?');
    for (const key of [
      'Next row',
      'Row before',
      'Open',
      'Fork',
      'Snapshot',
      'Compare the two that are picked',
    ])
      await page.getByRole('dialog').getByText(key, { exact: true }).waitFor();
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });

  test('takes files that are dropped on it, and shows a port that leads in', async () => {
    const page = await browser.signedIn(daemon, '/sandboxes/dev?tab=files&in=/srv');
    const files = page.getByRole('group', { name: 'Files' });
    await files.getByText('Drop files here').waitFor();
    const dropped = await page.evaluateHandle(() => {
      const data = new DataTransfer();
      data.items.add(new File(['one\n'], 'one.txt'));
      data.items.add(new File([new Uint8Array([0, 255])], 'two.bin'));
      return data;
    });
    await files.dispatchEvent('dragover', { dataTransfer: dropped });
    await files.dispatchEvent('drop', { dataTransfer: dropped });
    for (const name of ['one.txt', 'two.bin']) await page.getByRole('button', { name }).waitFor();
    expect(await dev.files.readText('/srv/one.txt')).toBe('one\n');
    expect([...(await dev.files.read('/srv/two.bin'))]).toEqual([0, 255]);

    await dev.jobs.start(['perl', '-e', server]);
    await page.getByRole('button', { name: 'Network and ports' }).click();
    await page.getByLabel('Port inside').fill('8080');
    await page.getByRole('button', { name: 'Forward' }).click();
    const link = page.getByRole('link', { name: /^http/ });
    await link.waitFor();
    await expectAccessible(page);
    const [preview] = await Promise.all([page.context().waitForEvent('page'), link.click()]);
    await preview.getByText('hello from inside').waitFor();
    // It learns neither who opened it nor how to reach back.
    expect(await preview.evaluate('[window.opener, document.referrer]')).toEqual([null, '']);
    await preview.close();
    await page.getByRole('button', { name: 'Remove' }).click();
    await link.waitFor({ state: 'detached' });
    expect((await dev.inspect()).forwards).toEqual([]);
    expect(browser.complaints).toEqual([]);
  });

  test('is told as events, which are filtered and lead to what they are about', async () => {
    const { id } = await dev.snapshot({ name: 'told' });
    const page = await browser.signedIn(daemon, '/events');
    const about = page.getByRole('group', { name: 'About' });
    await about.getByRole('button', { name: /^snapshot/ }).click();
    expect(page.url()).toContain('about=snapshot');
    const shown = rows(page, 'Events').filter({ hasText: id });
    await shown.waitFor();
    for (const text of await rows(page, 'Events').locator('[role=cell]:nth-child(2)').allInnerTexts())
      expect(text).toMatch(/^snapshot\./);
    await page.getByRole('searchbox').fill('told');
    await expect.poll(() => rows(page, 'Events').count()).toBe(1);
    await shown.getByRole('link', { name: id }).click();
    await page.getByRole('heading', { name: 'Lineage' }).waitFor();
    await expect.poll(() => rows(page, 'Lineage').locator('.name').allInnerTexts()).toEqual(['told']);
    await page.goBack();
    await shown.getByRole('link', { name: 'dev' }).click();
    await page.getByRole('heading', { name: 'dev' }).waitFor();
    expect(browser.complaints).toEqual([]);
  });

  test('can be read and used by everybody in every part of a sandbox, at 1280 pixels, light and dark', async () => {
    const page = await browser.signedIn(daemon, '/sandboxes/dev');
    for (const part of ['Files', 'Processes', 'Snapshots', 'Network and ports', 'Events', 'Terminal']) {
      await page.getByRole('group', { name: 'Part' }).getByRole('button', { name: part }).click();
      await page.locator('.tab > *').first().waitFor();
      await expectAccessible(page);
    }
    await page.goto(`${daemon.url}/nowhere`);
    await page.getByRole('heading', { name: 'There is nothing here' }).waitFor();
    await expectAccessible(page);
    expect(browser.complaints).toEqual([]);
  });

  test('moves nothing for who wants no motion', async () => {
    for (const reducedMotion of ['reduce', 'no-preference'] as const) {
      const context = await browser.context({ reducedMotion });
      const page = await browser.signedIn(daemon, '/', context);
      await rows(page, 'Sandboxes').first().waitFor();
      const moving = (): Promise<boolean> =>
        page.evaluate(() =>
          [...document.querySelectorAll('*')].some((element) => {
            const { animationName, transitionDuration } = getComputedStyle(element);
            return animationName !== 'none' || transitionDuration.split(', ').some((time) => time !== '0s');
          }),
        );
      expect(await moving(), reducedMotion).toBe(reducedMotion !== 'reduce');
    }
  });
});
