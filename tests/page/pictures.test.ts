import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, RunningDaemon } from '@coppice/testkit';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { TestBrowser } from './browser.ts';

/** Where the pictures of the documents go: `COPPICE_PICTURES=docs/pictures`. Without it they are taken and thrown away. */
const wanted = process.env.COPPICE_PICTURES;

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const call = `curl -sS -o /dev/null -d '{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"`;

/** A home as it is after a morning of work: something on every page. */
const fill = async (daemon: RunningDaemon): Promise<{ run: string; project: string }> => {
  const { client, home } = daemon;
  const step = { text: 'ok', usage: { input: 41_000, output: 9_200 } };
  await writeFile(join(home, 'demo.json'), JSON.stringify({ steps: Array.from({ length: 12 }, () => step) }));
  const models = { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] };
  await writeFile(join(home, 'models.json'), JSON.stringify(models));
  await client.budgets.set({ scope: 'home', period: 'day', micros: 10_000_000 });
  const api = await client.sandboxes.create({
    name: 'api',
    labels: { team: 'core' },
    network: { allow: ['models'] },
  });
  await api.files.write(
    '/srv/app.py',
    'import os\n\n\ndef answer() -> int:\n    return 42\n\n\nprint(answer())\n',
  );
  await api.files.write('/srv/app.conf', 'port = 8080\nworkers = 2\n');
  await api.snapshot({ name: 'baseline', note: 'tests pass' });
  await api.fork({ count: 3, name_prefix: 'try' });
  const [one, two] = [client.sandboxes.at('try-1'), client.sandboxes.at('try-2')];
  await one.files.write(
    '/srv/app.py',
    'import os\n\nLIMIT = 100\n\n\ndef answer(limit: int = LIMIT) -> int:\n    """As large as it may be."""\n    return min(limit, 43)\n\n\nprint(answer())\n',
  );
  await one.files.write(
    '/srv/test_app.py',
    'from app import answer\n\n\ndef test_answer():\n    assert answer() == 43\n',
  );
  await one.files.write('/srv/app.conf', 'port = 8080\nworkers = 4\n');
  await one.snapshot({ name: 'faster' });
  await two.files.write('/srv/notes.md', '# Notes\n\nA second way.\n');
  await api.merge(two);
  await api.snapshot({ name: 'with-notes' });
  const crawler = await client.sandboxes.create({ name: 'crawler', network: { ask: true } });
  await crawler.exec(resolver);
  const notebook = await client.sandboxes.create({ name: 'notebook' });
  await notebook.stop({ grace_s: 0 });
  const busy = 'while :; do i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; read -t 1 x; done';
  for (const sandbox of [api, one]) await sandbox.jobs.start(busy);
  const run = await client.runs.start({
    name: 'count-lines',
    task: 'Count the lines of the application, and say when you are done.',
    sandbox: 'try-3',
    command: 'echo "reading /srv/app.py"; wc -l /srv/app.py; echo "8 lines"; sleep 600',
  });

  const { projects } = client;
  const { id: project } = await projects.create({
    name: 'Release notes',
    description: 'Which agent writes release notes that people keep?',
    cap_usd: 20,
  });
  const earns = (cost: number, revenue: number) =>
    `printf '{"cost_usd":${cost},"revenue_usd":${revenue}}' > report.json`;
  for (const [name, script] of [
    ['terse', earns(0.4, 6)],
    ['thorough', earns(1.9, 7.5)],
  ] as const)
    await projects.deploy(project, { type: 'scripted', name, config: { script } });
  const { id: experiment } = await projects.startExperiment(project, {
    name: 'Shorter prompts',
    hypothesis: 'A short prompt passes as many checks as a long one',
    type: 'scripted',
    variants: [
      { name: 'long', config: { script: 'test $(($(cat /workspace/.agent/case) % 3)) -ne 0' } },
      { name: 'short', config: { script: 'test $(($(cat /workspace/.agent/case) % 5)) -ne 0' } },
    ],
    cases: Array.from({ length: 12 }, (_none, index) => ({ id: `case-${index}`, input: String(index) })),
  });
  await eventually(
    'the experiment ends',
    async () => (await projects.experiment(project, experiment)).state !== 'running',
    120_000,
  );
  await api.exec(`${resolver}; ${Array.from({ length: 6 }, () => call).join('; ')}`);
  await one.files.write('/srv/broken.txt', 'half done\n');
  await one.restore('faster');
  // Nobody answers it; the test ends before it does.
  await crawler.jobs.start(['curl', '-sS', 'http://files.example.com/']);
  return { run: run.id, project };
};

test('the pictures of the documents are taken of pages that show what they should', async () => {
  await using daemon = await RunningDaemon.start({
    programs: ['curl'],
    config: { gateway: { resolvers: ['127.0.0.1:9'], ask_timeout_s: 600 } },
  });
  await using browser = await TestBrowser.start();
  const { run, project } = await fill(daemon);
  const output = wanted ?? (await mkdtemp(join(tmpdir(), 'coppice-pictures-')));
  await mkdir(output, { recursive: true });
  const page: Page = await browser.signedIn(
    daemon,
    '/',
    await browser.context({ viewport: { width: 1280, height: 720 } }),
  );
  const take = async (name: string): Promise<void> => {
    await page.mouse.move(0, 0);
    await page.screenshot({ path: join(output, `${name}.png`) });
    // Not a blank page.
    expect((await stat(join(output, `${name}.png`))).size, name).toBeGreaterThan(10_000);
  };
  try {
    await page.getByText('asks for files.example.com').waitFor();
    // Long enough for the lines of use to have a shape.
    await expect
      .poll(() => page.locator('.spark polyline').first().getAttribute('points'), { timeout: 120_000 })
      .toMatch(/^(\S+ ){7}/);
    await page.getByRole('heading', { name: /of \$10\.00 today/ }).waitFor();
    await take('overview');
    await page.emulateMedia({ colorScheme: 'dark' });
    await take('overview-dark');
    await page.emulateMedia({ colorScheme: 'light' });

    await page.goto(`${daemon.url}/lineage`);
    await page.getByRole('row').filter({ hasText: 'baseline' }).first().click();
    await page.getByText('restored to faster').waitFor();
    await take('lineage');

    await page.goto(`${daemon.url}/compare?from=api&to=try-1&path=/srv/app.py`);
    await page.locator('.hl-keyword').first().waitFor();
    await take('compare');

    await page.goto(`${daemon.url}/sandboxes/api`);
    await page.locator('.xterm-rows').waitFor();
    await page.keyboard.type("cat /srv/app.conf; printf '\\033[32mready\\033[0m on port 8080\\n'\r");
    await page.locator('.xterm-accessibility').getByText('ready on port').first().waitFor();
    await take('sandbox');

    await page.goto(`${daemon.url}/sandboxes/crawler?tab=network`);
    await page.getByText('files.example.com:80').first().waitFor();
    await take('network');

    await page.goto(`${daemon.url}/runs/${run}`);
    await page.getByText('8 lines').first().waitFor();
    await take('run');

    await page.goto(`${daemon.url}/projects/${project}`);
    await page.getByRole('button', { name: 'Evaluate' }).click();
    await page.getByText('Goes to production').waitFor();
    await take('project');

    await page.goto(`${daemon.url}/costs`);
    await page.getByRole('table', { name: 'Costs' }).getByText('api').waitFor();
    await take('costs');

    await page.setViewportSize({ width: 390, height: 720 });
    await page.goto(`${daemon.url}/`);
    await page.getByRole('link', { name: 'crawler' }).waitFor();
    await take('phone');
    expect(browser.complaints).toEqual([]);
  } finally {
    if (wanted === undefined) await rm(output, { recursive: true });
  }
}, 300_000);
