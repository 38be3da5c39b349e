import { Coppice } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { expectAccessible, TestBrowser } from './browser.ts';

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

test('a connection that waits for a yes is on the overview, and is refused or allowed on the page, once or always', async () => {
  // Nothing leaves this machine: nobody answers for names here, so that what is allowed is not found.
  await using daemon = await RunningDaemon.start({
    programs: ['curl'],
    config: { gateway: { resolvers: ['127.0.0.1:9'], ask_timeout_s: 600 } },
  });
  await using browser = await TestBrowser.start();
  const sandbox = await daemon.client.sandboxes.create({ name: 'curious', network: { ask: true } });
  await sandbox.exec(resolver);
  const page = await browser.signedIn(daemon);
  await page.getByRole('heading', { name: '1 running, $0.00 today' }).waitFor();
  const reach = (name: string): Promise<number | null> =>
    sandbox.exec(['curl', '-sS', '-m', '500', `http://${name}/`]).then(
      ({ exit_code }) => exit_code,
      () => null,
    );

  const first = reach('one.example.com');
  await page.getByRole('heading', { name: '1 running, 1 needs you' }).waitFor();
  await page.getByRole('button', { name: /^Needs you/ }).click();
  expect(page.url()).toBe(`${daemon.url}/?state=needs`);
  await expectAccessible(page);
  await page.getByRole('link', { name: 'asks for one.example.com' }).click();
  const asked = page.getByRole('region', { name: 'Waits for your answer' });
  await asked.getByText('one.example.com:80').waitFor();
  await asked.getByText(/1 connection, refused in \d+ seconds/).waitFor();
  await expectAccessible(page);

  // The token of the sandbox itself sees the question, and cannot answer it.
  using inside = new Coppice({ url: daemon.url, token: sandbox.token! }, {});
  const within = await (await browser.context()).newPage();
  await within.goto(daemon.url + (await inside.pageLink()).path);
  await within.getByRole('button', { name: 'Network and ports' }).click();
  await within
    .getByRole('region', { name: 'Waits for your answer' })
    .getByText('one.example.com:80')
    .waitFor();
  expect(await within.getByRole('button', { name: 'Allow' }).count()).toBe(0);

  await asked.getByRole('button', { name: 'Refuse' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('coppice net curious --answer one.example.com:80=refuse').waitFor();
  await dialog.getByRole('button', { name: 'Refuse' }).click();
  await dialog.waitFor({ state: 'detached' });
  expect(await first).toBeGreaterThan(0);
  await asked.waitFor({ state: 'detached' });
  expect((await sandbox.inspect()).network).toMatchObject({ allow: [], deny: [] });

  const second = reach('two.example.com');
  await asked.getByText('two.example.com:80').waitFor();
  await asked.getByRole('button', { name: 'Allow' }).click();
  await dialog.getByLabel('How long').selectOption('always');
  await dialog.getByText('--answer two.example.com:80=allow').waitFor();
  await dialog.getByRole('button', { name: 'Allow' }).click();
  // The policy is enforced before it is written down: the connection goes on, and the question ends, before the answer has come back.
  await dialog.waitFor({ state: 'detached' });
  await second;
  await asked.waitFor({ state: 'detached' });
  expect((await sandbox.inspect()).network.allow).toEqual(['two.example.com']);
  await page.goto(daemon.url);
  await page.getByRole('heading', { name: '1 running, $0.00 today' }).waitFor();
  expect(browser.complaints).toEqual([]);
});
