import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ScriptedUpstream } from '@coppice/gateway';
import type { Event } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gatewayPid } from './gateway-pid.ts';

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

let daemon: RunningDaemon;
let upstream: ScriptedUpstream;

beforeAll(async () => {
  upstream = new ScriptedUpstream({ steps: [{ text: 'ok', usage: { input: 1000, output: 100 } }] });
  const url = await upstream.listen();
  daemon = await RunningDaemon.start({ programs: ['curl'] });
  writeFileSync(
    join(daemon.home, 'models.json'),
    JSON.stringify({ upstreams: [{ name: 'vendor', kind: 'anthropic', url }] }),
  );
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await upstream?.[Symbol.asyncDispose]();
});

const open = async (): Promise<Sandbox> => {
  const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['models'] } });
  await sandbox.exec(['sh', '-c', resolver]);
  return sandbox;
};

const ask = (text: string, tools = true): string => {
  const body = JSON.stringify({
    model: 'claude-sonnet-4-5',
    max_tokens: 200,
    ...(tools ? { tools: [{ name: 'bash', input_schema: { type: 'object' } }] } : {}),
    messages: [{ role: 'user', content: text }],
  });
  return `curl -sS -m 30 -d '${body}' "$ANTHROPIC_BASE_URL/v1/messages" >> /tmp/answers 2>&1`;
};
const sh = async (sandbox: Sandbox, command: string): Promise<string> =>
  (await sandbox.exec(['sh', '-c', command])).stdout;

/** Events of a sandbox that the gateway told, once there are so many of a kind. */
async function told(sandbox: Sandbox, type: string, count: number): Promise<Event[]> {
  const of = async () => (await daemon.client.events.list({ sandbox: sandbox.id, limit: 500 })).events;
  await eventually(`${count} events ${type}`, async () => {
    return (await of()).filter((event) => event.type === type).length >= count;
  });
  return (await of()).filter((event) => /^(model|budget|connection)\./.test(event.type));
}

test('each step of a call is an event, with the run, agent and project that the sandbox works for', async () => {
  const sandbox = await open();
  const whom = { run: 'run_1', agent: 'claude', project: 'web' };
  await sandbox.setCallsFor(whom);
  expect(await sandbox.callsFor()).toEqual(whom);
  await sh(sandbox, ask('<coppice-message id="msg_1">look here</coppice-message>'));
  const [request, firstByte, settled, ...more] = await told(sandbox, 'model.settled', 1);
  expect(more).toEqual([]);
  expect(request).toMatchObject({
    type: 'model.request',
    sandbox_id: sandbox.id,
    data: { ...whom, tools: true, messages: ['msg_1'], new_messages: ['msg_1'], model: 'claude-sonnet-4-5' },
  });
  expect(firstByte).toMatchObject({ type: 'model.first_byte', data: { ...whom, call: request?.data.call } });
  expect(settled).toMatchObject({
    type: 'model.settled',
    data: {
      ...whom,
      call: request?.data.call,
      outcome: 'complete',
      usage: { input: 1000, output: 100 },
      cost_micros: 4500,
    },
  });
  const { rows } = await daemon.client.costs({ by: 'run,agent,project' });
  expect(rows.find((row) => row.key.run === 'run_1')).toMatchObject({ key: whom, calls: 1 });
  expect(JSON.stringify([request, firstByte, settled])).not.toContain('look here');
});

test('a fork counts for the project that it belongs to until it is told for whom', async () => {
  const sandbox = await open();
  await sandbox.setCallsFor({ run: 'run_of_parent' });
  const [fork] = (await sandbox.fork()).sandboxes;
  expect(await fork!.callsFor()).toEqual({ project: 'default' });
  await sh(fork!, ask('hello'));
  const [request] = await told(fork!, 'model.settled', 1);
  expect(request?.data).toMatchObject({ run: null, agent: null, project: 'default' });
});

test('whoever is killed, each event arrives once, and calls count for whom they did before', async () => {
  const sandbox = await open();
  await sandbox.setCallsFor({ run: 'run_2' });
  const calls = 30;
  await sh(
    sandbox,
    `(for i in $(seq ${calls}); do ${ask('hi', false)}; sleep 0.1; done; touch /tmp/done) > /dev/null 2>&1 & until [ -s /tmp/answers ]; do sleep 0.05; done`,
  );
  await daemon.kill();
  await daemon.restart();
  await daemon.kill();
  await daemon.restart();
  await eventually('all calls were made', async () => (await sh(sandbox, 'ls /tmp')).includes('done'));
  process.kill(gatewayPid(daemon.home), 'SIGKILL');
  await eventually('the gateway is back', async () =>
    (await sh(sandbox, `${ask('again', false)}; tail -n1 /tmp/answers`)).includes('"end_turn"'),
  );
  const { calls: inLedger } = (await daemon.client.costs({ run: 'run_2' })).total;
  expect(inLedger).toBeGreaterThan(calls);
  const events = await told(sandbox, 'model.settled', inLedger);
  const of = (type: string) => events.filter((event) => event.type === type).map((event) => event.data.call);
  expect(of('model.settled')).toHaveLength(inLedger);
  expect(new Set(of('model.settled')).size).toBe(inLedger);
  expect(of('model.request')).toHaveLength(inLedger);
  expect(events.every((event) => event.data.run === 'run_2')).toBe(true);
});

test('a connection that is refused is an event', async () => {
  const sandbox = await open();
  await sh(sandbox, 'curl -sS -m 20 http://evil.example.org/ 2>&1');
  const [refused] = await told(sandbox, 'connection.refused', 1);
  expect(refused).toMatchObject({
    sandbox_id: sandbox.id,
    data: { name: 'evil.example.org', reason: 'evil.example.org is not allowed' },
  });
});

test('for whom a sandbox calls is nothing that it can change itself', async () => {
  const { Coppice } = await import('@coppice/sdk');
  const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['models'] } });
  const inside = new Coppice({ url: daemon.url, token: sandbox.token! });
  await expect(
    (await inside.sandboxes.get(sandbox.id)).setCallsFor({ run: 'another' }),
  ).rejects.toMatchObject({
    code: 'forbidden',
  });
  await expect(sandbox.setCallsFor({ run: '../x y' })).rejects.toMatchObject({ code: 'invalid_argument' });
});
