import { RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

test('a run is watched, spoken to, forked at a step and stopped on the page', async () => {
  await using daemon = await RunningDaemon.start();
  await using browser = await TestBrowser.start();
  const page = await browser.signedIn(daemon, '/runs');
  await page.getByRole('heading', { name: 'No runs yet' }).waitFor();
  const run = await daemon.client.runs.start({
    name: 'busy',
    task: 'say <b>hello</b>',
    command: "echo 'hello <img src=x onerror=window.hacked=1>'; sleep 600",
  });
  await page.getByRole('link', { name: 'busy' }).click();
  expect(page.url()).toBe(`${daemon.url}/runs/${run.id}`);
  await page.getByRole('heading', { name: 'busy' }).waitFor();
  const timeline = page.getByRole('list', { name: 'What the agent did' });
  await timeline.getByText('hello <img src=x').waitFor();
  await page.getByLabel('Message to the agent').fill('hurry up');
  await page.getByRole('button', { name: 'Send' }).click();
  await timeline.getByText('hurry up').waitFor();
  expect((await daemon.client.runs.messages(run.id)).map(({ text }) => text)).toEqual(['hurry up']);
  await expectAccessible(page);

  await daemon.client.runs.takeStep(run.id, { title: 'by hand' });
  const [step] = (await daemon.client.runs.steps(run.id)).slice(-1);
  await page.getByRole('button', { name: `Fork from step ${step!.number}` }).click();
  await page.getByLabel('Name').fill('other-way');
  await page
    .getByRole('dialog')
    .getByText(`coppice agent fork busy --from ${step!.number} --name other-way`)
    .waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Fork' }).click();
  await page.getByRole('heading', { name: 'other-way' }).waitFor();
  expect((await daemon.client.runs.get('other-way')).parent).toEqual({ run_id: run.id, step: step!.number });

  await page.goto(`${daemon.url}/runs/${run.id}`);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.title').getByText('cancelled').waitFor();
  expect(await page.evaluate('window.hacked')).toBeUndefined();
  await page.getByRole('link', { name: 'Runs' }).click();
  await page.getByRole('heading', { name: '2 runs' }).waitFor();
  await expectAccessible(page);
  expect(browser.complaints).toEqual([]);
});
