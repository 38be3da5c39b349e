import { eventually, RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

test('a project is made, fed, judged, promoted and rolled back on the page', async () => {
  await using daemon = await RunningDaemon.start();
  await using browser = await TestBrowser.start();
  const page = await browser.signedIn(daemon, '/projects');
  await page.getByRole('heading', { name: 'No projects yet' }).waitFor();
  const dialog = page.getByRole('dialog');

  await page.getByRole('button', { name: 'New project' }).click();
  await dialog.getByLabel('Name').fill('Leads <b>');
  await dialog.getByLabel('Most it may cost, in dollars').fill('20');
  await dialog.getByText("coppice project create 'Leads <b>' --cap 20").waitFor();
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Leads <b>' }).waitFor();
  const [project] = await daemon.client.projects.list();
  expect(project).toMatchObject({ name: 'Leads <b>', cap_usd: 20 });

  await page.getByRole('button', { name: 'Deploy an agent' }).click();
  await dialog.getByLabel('Type').selectOption('scripted');
  await dialog.getByLabel('Name').fill('finder');
  await dialog.getByLabel('Configuration, as JSON').fill('{script');
  await dialog.getByRole('button', { name: 'Deploy' }).click();
  await dialog.getByText('The configuration is not JSON').waitFor();
  const script = `printf '{"cost_usd":1,"revenue_usd":5}' > report.json`;
  await dialog.getByLabel('Configuration, as JSON').fill(JSON.stringify({ script }));
  await dialog.getByRole('button', { name: 'Deploy' }).click();
  await page.getByRole('row', { name: /finder.*scripted.*active/ }).waitFor();
  await eventually(
    'it has earned',
    async () => (await daemon.client.projects.get(project!.id)).metrics.revenue_usd > 0,
  );
  await page.getByRole('button', { name: 'Pause finder' }).click();
  await dialog.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('row', { name: /finder.*paused/ }).waitFor();
  await expectAccessible(page);

  await page.getByRole('button', { name: 'Evaluate' }).click();
  await page.getByRole('heading', { name: 'Worth considering' }).waitFor();
  expect(await page.getByRole('button', { name: 'Promote' }).isDisabled()).toBe(true);
  await page.getByRole('button', { name: 'Resume finder' }).click();
  await dialog.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('row', { name: /finder.*active/ }).waitFor();
  await page.getByRole('button', { name: 'Evaluate again' }).click();
  await page.getByRole('heading', { name: /ecommended/ }).waitFor();
  await page.getByText('Goes to production: finder.').waitFor();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Promote' }).click();
  await dialog.getByText(/coppice project promote .* --digest [0-9a-f]{64}/).waitFor();
  await dialog.getByRole('button', { name: 'Promote' }).click();
  const production = page.getByRole('region', { name: 'Production' });
  await production.getByRole('row', { name: /finder/ }).waitFor();
  await page.getByRole('row', { name: /Leads <b>.*promoted.*\$5\.00/ }).waitFor();
  await expectAccessible(page);

  await production.getByRole('button', { name: 'Roll back finder' }).click();
  await dialog.getByLabel('Why').fill('it got <i>worse</i>');
  await dialog.getByRole('button', { name: 'Roll back' }).click();
  await production.getByRole('row', { name: /finder.*rolled-back.*it got <i>worse<\/i>/ }).waitFor();
  expect(await daemon.client.production.list()).toMatchObject([
    { stage: 'rolled-back', rollback: { reason: 'it got <i>worse</i>' } },
  ]);
  expect(browser.complaints).toEqual([]);
});

test('an experiment shows its variants with their intervals, and says when there is not enough data yet', async () => {
  await using daemon = await RunningDaemon.start();
  await using browser = await TestBrowser.start();
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Prompts' });
  const { id: experiment } = await projects.startExperiment(id, {
    name: 'Shorter <i>prompts</i>',
    hypothesis: 'A short prompt passes as often as a long one',
    type: 'scripted',
    variants: [
      { name: 'long', config: { script: 'test $(($(cat /workspace/.agent/case) % 2)) -eq 0' } },
      { name: 'short', config: { script: 'true' } },
    ],
    cases: Array.from({ length: 4 }, (_none, index) => ({ id: `case-${index}`, input: String(index) })),
  });
  await eventually(
    'the experiment ends',
    async () => (await projects.experiment(id, experiment)).state !== 'running',
    120_000,
  );
  const page = await browser.signedIn(daemon, `/projects/${id}`);
  const table = page.getByRole('region', { name: 'Shorter <i>prompts</i>' });
  await table.getByRole('row', { name: /long.*50 %.*baseline/ }).waitFor();
  const short = table.getByRole('row', { name: /short.*100 %/ });
  await short.getByText(/not enough data yet/).waitFor();
  expect(await short.getByRole('img').getAttribute('aria-label')).toMatch(/^\d+ % to 100 %$/);
  await expectAccessible(page);
  expect(browser.complaints).toEqual([]);
});
