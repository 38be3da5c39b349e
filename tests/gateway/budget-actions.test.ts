import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));
const criu = fileURLToPath(new URL('../../.tools/criu/criu', import.meta.url));

let daemon: RunningDaemon;
const coppice = async (...args: string[]): Promise<string> =>
  (await promisify(execFile)(process.execPath, [cli, ...args, '--home', daemon.home])).stdout;

/** No key and no server: the gateway answers from a file. Each call takes 400 of 1,000 tokens. */
beforeAll(async () => {
  daemon = await RunningDaemon.start({
    programs: ['curl'],
    config: existsSync(criu) ? { criu } : {},
  });
  const script = { steps: [{ text: 'ok', usage: { input: 300, output: 100 } }] };
  writeFileSync(join(daemon.home, 'demo.json'), JSON.stringify(script));
  const models = { upstreams: [{ name: 'demo', kind: 'script', script: 'demo.json' }] };
  writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const open = async (driver: 'container' | 'gvisor', project?: string): Promise<Sandbox> => {
  const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: ['models'] } });
  await sandbox.exec(['sh', '-c', resolver]);
  if (project !== undefined) await sandbox.setCallsFor({ project });
  return sandbox;
};
const ask = `curl -sS -m 30 -o /dev/null -w '%{http_code}' -d '{"model":"m","max_tokens":100,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"`;
const stateOf = async (sandbox: Sandbox): Promise<string> =>
  String((await daemon.client.sandboxes.get(sandbox.id)).info?.state);
const is = (sandbox: Sandbox, state: string): Promise<void> =>
  eventually(`it is ${state}`, async () => (await stateOf(sandbox)) === state, 40_000);
const thresholds = async (sandbox: Sandbox): Promise<unknown[]> =>
  (await daemon.client.events.list({ sandbox: sandbox.id, type: 'budget.threshold' })).events.map(
    (event) => event.data.percent,
  );

test('a project whose budget is used up has its sandboxes stopped, and others run on', async () => {
  const [one, other, stranger] = [
    await open('container', 'web'),
    await open('container', 'web'),
    await open('container'),
  ];
  await coppice('budget', 'set', 'project', 'web', '--tokens', '800', '--then', 'stop');
  expect(await coppice('budget', 'ls')).toMatch(/project +web +ever +0 of 800 tokens +stop/);
  await one.exec(['sh', '-c', ask]);
  await one.exec(['sh', '-c', ask]).catch(() => {});
  await is(one, 'stopped');
  await is(other, 'stopped');
  expect(await stateOf(stranger)).toBe('running');
  expect(await thresholds(one)).toEqual([75, 90, 100]);
  const { events } = await daemon.client.events.list({ sandbox: other.id, type: 'budget.enforced' });
  expect(events).toMatchObject([
    { data: { action: 'stop', reason: 'the budget of the project web is used up' } },
  ]);
});

test('a sandbox whose budget is used up is paused with its memory, and goes on when it is raised', async ({
  skip,
}) => {
  // gVisor can as well, but keeps no memory for a minute after a program has closed a connection.
  skip(!existsSync(criu), 'set-up could not get CRIU 4 for the tests');
  const sandbox = await open('container');
  await coppice('budget', 'set', 'sandbox', sandbox.id, '--tokens', '500', '--then', 'pause');
  await sandbox.exec([
    'sh',
    '-c',
    `(${ask}; sleep 1; ${ask}; while :; do echo on > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 &`,
  ]);
  await is(sandbox, 'paused');
  await coppice('budget', 'set', 'sandbox', sandbox.id, '--tokens', '5000', '--then', 'pause');
  await sandbox.resume();
  const beat =
    'until [ -s /tmp/beat ]; do sleep 0.05; done; rm /tmp/beat; until [ -s /tmp/beat ]; do sleep 0.05; done';
  expect((await sandbox.exec(['sh', '-c', beat], { timeout_ms: 30_000 })).exit_code).toBe(0);
  expect((await sandbox.exec(['sh', '-c', ask])).stdout).toBe('200');
});

test('a daemon that was away when a budget was used up stops its sandboxes when it is back', async () => {
  const sandbox = await open('container');
  await daemon.client.budgets.set({ scope: 'sandbox', name: sandbox.id, tokens: 400, action: 'stop' });
  await sandbox.exec(['sh', '-c', `(sleep 0.5; ${ask} > /tmp/code) > /dev/null 2>&1 &`]);
  await daemon.kill();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await daemon.restart();
  await is(sandbox, 'stopped');
  expect(await thresholds(sandbox)).toEqual([75, 90, 100]);
});
