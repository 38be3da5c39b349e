import { AxeBuilder } from '@axe-core/playwright';
import type { RunningDaemon } from '@coppice/testkit';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';

const program = '/usr/bin/chromium';

/** Under load a page takes its time; nothing here waits for a duration. */
const patienceMs = 60_000;

/** One browser for a file. Pages of their own contexts share nothing. */
export class TestBrowser implements AsyncDisposable {
  readonly #browser: Browser;
  /** What pages said on their consoles that they should not have. */
  readonly complaints: string[] = [];

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  static async start(): Promise<TestBrowser> {
    return new TestBrowser(
      await chromium.launch({
        executablePath: program,
        // Tests run as root, where Chromium's own sandbox refuses to start. It loads nothing but our page.
        args: ['--no-sandbox', '--font-render-hinting=none', '--force-color-profile=srgb', '--disable-gpu'],
      }),
    );
  }

  async context(options: Parameters<Browser['newContext']>[0] = {}): Promise<BrowserContext> {
    const context = await this.#browser.newContext({
      viewport: { width: 1280, height: 800 },
      reducedMotion: 'reduce',
      colorScheme: 'light',
      ...options,
    });
    context.setDefaultTimeout(patienceMs);
    context.on('console', (message) => {
      // Answers that are no success are the page's own to judge; what is left are policies that were broken, and the like.
      if (message.type() === 'error' && !/^Failed to load resource/.test(message.text()))
        this.complaints.push(message.text());
    });
    context.on('weberror', (error) => this.complaints.push(String(error.error())));
    return context;
  }

  /** A page that a link has signed in. */
  async signedIn(daemon: RunningDaemon, path = '/', context?: BrowserContext): Promise<Page> {
    const page = await (context ?? (await this.context())).newPage();
    const link = await daemon.client.pageLink();
    await page.goto(daemon.url + link.path);
    await page.getByRole('status').getByText('Live').waitFor();
    if (path !== '/') await page.goto(daemon.url + path);
    return page;
  }

  async closeAll(): Promise<void> {
    for (const context of this.#browser.contexts()) await context.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }
}

/** WCAG 2.2 AA, in both themes. */
export const expectAccessible = async (page: Page): Promise<void> => {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const axe = new AxeBuilder({ page });
    // Nothing but colours differs between the two.
    if (colorScheme === 'light') axe.withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']);
    else axe.withRules(['color-contrast']);
    const { violations } = await axe.analyze();
    const found = violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
    );
    expect(found, `${page.url()} ${colorScheme}`).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: 'light' });
};
