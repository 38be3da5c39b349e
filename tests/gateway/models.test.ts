import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Heard, ScriptedUpstream } from '@coppice/gateway';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const key = 'sk-real-key-of-the-operator-7f3a';
const usage = { input: 1000, output: 100 };
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));

let daemon: RunningDaemon;
let upstream: ScriptedUpstream;
const heard: Heard[] = [];

const coppice = async (...args: string[]): Promise<string> =>
  (await promisify(execFile)(process.execPath, [cli, ...args, '--home', daemon.home])).stdout;

beforeAll(async () => {
  upstream = new ScriptedUpstream({ steps: [{ text: 'hello from the model', usage }] }, (each) =>
    heard.push(each),
  );
  const url = await upstream.listen();
  daemon = await RunningDaemon.start({ programs: ['curl'] });
  const models = { upstreams: [{ name: 'vendor', kind: 'anthropic', url, secret: 'vendor-key' }] };
  writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
  await daemon.client.secrets.set('vendor-key', key);
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await upstream?.[Symbol.asyncDispose]();
});

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const body = JSON.stringify({
  model: 'claude-sonnet-4-5',
  max_tokens: 200,
  messages: [{ role: 'user', content: 'hi' }],
});
const ask = `curl -sS -m 30 -w '\n%{http_code}' -H "x-api-key: $ANTHROPIC_API_KEY" -H 'anthropic-version: 2023-06-01' -d '${body}' "$ANTHROPIC_BASE_URL/v1/messages" 2>&1`;

describe.each(['container', 'gvisor'] as const)('a sandbox of %s that may ask for models', (driver) => {
  test('gets answers with a key that it never holds, and each call is in the ledger', async () => {
    const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: ['models'] } });
    await sandbox.exec(['sh', '-c', resolver]);
    const before = (await daemon.client.costs()).total;
    const { stdout } = await sandbox.exec(['sh', '-c', ask]);
    expect(stdout).toContain('hello from the model');
    expect(heard.at(-1)?.headers['x-api-key']).toBe(key);
    const { rows, total } = await daemon.client.costs({ by: 'sandbox,model' });
    expect(total.calls).toBe(before.calls + 1);
    const own = rows.find((row) => row.key.sandbox === sandbox.id);
    // 1,000 tokens at 3 dollars and 100 at 15 dollars a million.
    expect(own).toMatchObject({ calls: 1, input: 1000, output: 100, cost_micros: 4500, estimated: 0 });
    const inside = await sandbox.exec([
      'sh',
      '-c',
      `env; grep -rl ${key} /etc /home /root /tmp /usr /var 2>/dev/null`,
    ]);
    expect(inside.stdout).toContain('ANTHROPIC_API_KEY=coppice-placeholder');
    expect(inside.stdout).not.toContain(key);
    await sandbox.destroy();
  });

  test('reaches nothing else', async () => {
    const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: ['models'] } });
    await sandbox.exec(['sh', '-c', resolver]);
    const { stdout } = await sandbox.exec(['sh', '-c', 'curl -sS -m 20 http://example.com/ 2>&1']);
    expect(stdout).toContain('Could not resolve host');
    await sandbox.destroy();
  });

  test('is refused in the form of its vendor once its budget is used up', async () => {
    const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: ['models'] } });
    await sandbox.exec(['sh', '-c', resolver]);
    await coppice('budget', 'set', 'sandbox', sandbox.id, '--usd', '0.006');
    expect((await sandbox.exec(['sh', '-c', ask])).stdout).toMatch(/200$/);
    const { stdout } = await sandbox.exec(['sh', '-c', ask]);
    expect(stdout).toMatch(/402$/);
    expect(stdout).toContain('"type":"error"');
    expect(stdout).toContain('used up');
    expect(await coppice('budget', 'ls')).toContain('$0.004500 of $0.006000');
    expect((await daemon.client.costs({ sandbox: sandbox.id })).total.calls).toBe(1);
    await sandbox.destroy();
    await coppice('budget', 'rm', 'sandbox', sandbox.id);
  });
});

test('an answer that is on its way arrives whole though the daemon is killed and the policy changed', async () => {
  const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['models'] } });
  await sandbox.exec(['sh', '-c', resolver]);
  const slow = new ScriptedUpstream({
    steps: [{ text: 'one two three four', parts: 40, partDelayMs: 250, usage }],
  });
  const file = join(daemon.home, 'models.json');
  const before = readFileSync(file, 'utf8');
  writeFileSync(file, before.replace(/http:[^"]+/, await slow.listen()));
  const streamed = ask.replace('"max_tokens":200', '"max_tokens":200,"stream":true');
  await sandbox.exec([
    'sh',
    '-c',
    `(${streamed}) > /tmp/answer & until [ -s /tmp/answer ]; do sleep 0.05; done`,
  ]);
  await daemon.kill();
  await daemon.restart();
  await sandbox.setNetwork({ allow: ['models', 'example.com'] });
  const { stdout } = await sandbox.exec([
    'sh',
    '-c',
    'until [ "$(tail -n1 /tmp/answer)" = 200 ]; do sleep 0.1; done; cat /tmp/answer',
  ]);
  expect(stdout).toContain('message_stop');
  writeFileSync(file, before);
  await slow[Symbol.asyncDispose]();
});

test('a sandbox that may reach names but no models is refused by the gateway', async () => {
  const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['example.com'] } });
  await sandbox.exec(['sh', '-c', resolver]);
  const { stdout } = await sandbox.exec(['sh', '-c', 'curl -sS -m 20 http://gateway.coppice/v1/models; env']);
  expect(stdout).toContain('may not ask for models');
  expect(stdout).not.toContain('ANTHROPIC_API_KEY');
});

test('a value of a secret is in no file of the home, in no answer and in no log', async () => {
  const below = (directory: string): string[] =>
    readdirSync(directory, { withFileTypes: true, recursive: true })
      .filter((entry) => entry.isFile() && !entry.parentPath.includes('/pool') && entry.name !== 'pool.img')
      .map((entry) => join(entry.parentPath, entry.name));
  for (const directory of ['gateway', 'log']) {
    const files = below(join(daemon.home, directory));
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) expect(readFileSync(file).includes(key), file).toBe(false);
  }
  expect(JSON.stringify(await daemon.client.secrets.list())).not.toContain(key);
  expect(readFileSync(join(daemon.home, 'coppice.db')).includes(key)).toBe(false);
});

test('costs are shown as a table, as JSON and as CSV', async () => {
  expect(await coppice('costs')).toMatch(/MODEL +CALLS.*claude-sonnet-4-5 +\d+.*total/s);
  expect(JSON.parse(await coppice('costs', '--json')).total.calls).toBeGreaterThan(0);
  expect(await coppice('costs', '--csv', '--by', 'day,model')).toMatch(/^day,model,calls,/);
});

test('a models.json that is wrong stops calls and is named, and one that is right again is taken', async () => {
  const file = join(daemon.home, 'models.json');
  const right = readFileSync(file, 'utf8');
  const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['models'] } });
  await sandbox.exec(['sh', '-c', resolver]);
  writeFileSync(file, '{"upstreams": [{"name": "x", "kind": "nobody"}]}');
  expect((await sandbox.exec(['sh', '-c', ask])).stdout).toContain('models.json of this Coppice is wrong');
  writeFileSync(file, right);
  expect((await sandbox.exec(['sh', '-c', ask])).stdout).toContain('hello from the model');
});
