import { eventually, RunningDaemon } from '@coppice/testkit';
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

test('what an agent did is on its page: tool calls, file diffs, steps to rewind to, and the guardian', async () => {
  await using daemon = await RunningDaemon.start();
  await using browser = await TestBrowser.start();
  const { runs, guardian } = daemon.client;
  const run = await runs.start({
    name: 'editor',
    task: 'fix the answer',
    command: 'echo "$COPPICE_RUN_TOKEN"; echo 42 > /workspace/answer; sleep 600',
  });
  let token = '';
  await eventually('it said its token', async () => {
    token = /cpt_[\w-]+/.exec(JSON.stringify(await runs.listEvents(run.id)))?.[0] ?? '';
    return token !== '';
  });
  const report = async (type: string, data: object): Promise<void> => {
    const answer = await fetch(`${daemon.url}/v1/run/events`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ type, data }),
    });
    expect(answer.status, `${type}: ${await answer.text()}`).toBe(201);
  };
  const page = await browser.signedIn(daemon, `/runs/${run.id}`);
  const timeline = page.getByRole('list', { name: 'What the agent did' });
  await report('agent.message', { text: 'I look at the <b>file</b>' });
  await timeline.getByText('I look at the <b>file</b>').waitFor();
  const call = { call_id: 't1', tool: 'bash' };
  await report('agent.tool_use', { ...call, kind: 'execute', title: 'cat answer', input: 'cat answer' });
  await timeline.getByText('bash: cat answer').waitFor();
  await report('agent.tool_result', { ...call, ok: true, output: 'forty-two' });
  await timeline.getByText('forty-two').waitFor();
  await report('agent.file_edited', {
    path: '/workspace/answer',
    change: 'modified',
    added: 1,
    removed: 1,
    diff: '--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-42\n+43\n',
  });
  await timeline.locator('.edit .removed').getByText('42').waitFor();
  await timeline.locator('.edit .added').getByText('43').waitFor();
  const sandbox = daemon.client.sandboxes.at((await runs.get(run.id)).sandbox_id!);
  await runs.takeStep(run.id, { title: 'before the edit' });
  const [step] = (await runs.steps(run.id)).slice(-1);
  await sandbox.files.write('/workspace/answer', '43\n');
  await guardian.intervene(run.id, { kind: 'remind', message: 'Stay with the task.', reason: 'it wanders' });
  await timeline.getByText(/^guardian: remind/).waitFor();
  await expectAccessible(page);

  await page.getByRole('button', { name: `Rewind to step ${step!.number}` }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText(`coppice agent rewind editor --to ${step!.number}`).waitFor();
  await dialog.getByRole('button', { name: 'Rewind' }).click();
  await timeline.getByText(new RegExp(`^rewound from step \\d+ to ${step!.number}$`)).waitFor();
  await eventually(
    'the file is as it was',
    async () => (await sandbox.files.readText('/workspace/answer').catch(() => '')) === '42\n',
  );
  expect(browser.complaints).toEqual([]);
});
