/** Takes the pictures of the page that the documents show, into docs/pictures: node scripts/pictures.ts */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { chromium, type Page } from 'playwright-core';

const output = join(import.meta.dirname, '../docs/pictures');
/** Long enough for the lines of use to have a shape. */
const measuredMs = 30_000;

await mkdir(output, { recursive: true });
await using daemon = await RunningDaemon.start();
const { client } = daemon;

const api = await client.sandboxes.create({ name: 'api', labels: { team: 'core' } });
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
await client.sandboxes.create({ name: 'crawler' });
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

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--force-color-profile=srgb'],
});
const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, colorScheme: 'light' });
const page: Page = await context.newPage();
await page.goto(daemon.url + (await client.pageLink()).path);
await page.getByRole('status').getByText('Live').waitFor();

const take = async (name: string): Promise<void> => {
  await page.mouse.move(0, 0);
  await page.screenshot({ path: join(output, `${name}.png`) });
};

await sleep(measuredMs);
await take('overview');

await page.goto(`${daemon.url}/lineage`);
await page.getByRole('row').filter({ hasText: 'baseline' }).first().click();
await take('lineage');

await page.goto(`${daemon.url}/compare?from=api&to=try-1&path=/srv/app.py`);
await page.locator('.hl-keyword').first().waitFor();
await take('compare');

await page.goto(`${daemon.url}/sandboxes/api`);
await page.locator('.xterm-rows').waitFor();
await page.keyboard.type("cat /srv/app.conf; printf '\\033[32mready\\033[0m on port 8080\\n'\r");
await page.locator('.xterm-accessibility').getByText('ready on port').first().waitFor();
await sleep(10_000);
await take('sandbox');

await page.goto(`${daemon.url}/runs/${run.id}`);
await page.getByText('8 lines').first().waitFor();
await take('run');

await page.goto(`${daemon.url}/projects/${project}`);
await page.getByRole('button', { name: 'Evaluate' }).click();
await page.getByText('Goes to production').waitFor();
await take('project');

await page.setViewportSize({ width: 390, height: 720 });
await page.goto(`${daemon.url}/`);
await page.getByRole('link', { name: 'crawler' }).waitFor();
await take('phone');

await browser.close();
