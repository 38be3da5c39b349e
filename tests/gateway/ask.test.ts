import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Question } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatewayPid } from './gateway-pid.ts';
import { Internet, nameServer, server } from './internet.ts';

const zone = Object.fromEntries(
  ['good', 'asked', 'second', 'third', 'fourth', 'fifth', 'sixth', 'denied'].map((label) => [
    `${label}.example.com`,
    server,
  ]),
);
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));

let internet: Internet;
let daemon: RunningDaemon;

beforeAll(async () => {
  internet = await Internet.open({ ...zone, 'loop.example.com': '127.0.0.1' });
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['curl', 'getent'],
    config: { gateway: { resolvers: [`${nameServer}:53`], ask_timeout_s: 600 } },
  });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
});

const policy = { allow: ['good.example.com'], deny: ['denied.example.com'], ask: true };
const open = async (driver: 'container' | 'gvisor' = 'container', network: object = policy) => {
  const sandbox = await daemon.client.sandboxes.create({ driver, network });
  await sandbox.exec(['sh', '-c', resolver]);
  return sandbox;
};
const curl = async (sandbox: Sandbox, ...args: string[]): Promise<string> => {
  const { stdout, stderr } = await sandbox.exec(['curl', '-sS', '-k', '-m', '500', ...args]);
  return `${stdout}${stderr}`;
};
const asked = async (sandbox: Sandbox, name: string, connections = 1): Promise<Question> => {
  let found: Question | undefined;
  await eventually(`it asks for ${name}`, async () => {
    found = (await sandbox.questions()).find((each) => each.name === name);
    return found !== undefined && found.connections >= connections;
  });
  return found!;
};
const failed = /Empty reply|reset|SSL|TLS|closed|Recv failure/i;

describe.each(['container', 'gvisor'] as const)('a sandbox of %s that asks', (driver) => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await open(driver);
  });

  test('reaches what is allowed without asking, and never what is denied', async () => {
    expect(await curl(sandbox, 'https://good.example.com/')).toBe('tls good.example.com');
    expect(await curl(sandbox, 'https://denied.example.com/')).toContain('Could not resolve host');
    expect(await sandbox.questions()).toEqual([]);
  });

  test('waits for an answer, and nobody outside hears of the name before', async () => {
    await internet.asked();
    const page = curl(sandbox, 'https://asked.example.com/');
    expect(await asked(sandbox, 'asked.example.com')).toMatchObject({ port: 443, connections: 1 });
    expect((await sandbox.exec(['getent', 'ahostsv4', 'c2VjcmV0.tunnel.example.org'])).stdout).toMatch(
      /^198\.1[89]\./,
    );
    expect(await internet.asked()).toEqual([]);
    await sandbox.answer({ name: 'asked.example.com', answer: 'allow' });
    expect(await page).toBe('tls asked.example.com');
    const { network } = await sandbox.inspect();
    expect(network.allow).toEqual(['good.example.com', 'asked.example.com']);
    expect(await curl(sandbox, 'https://asked.example.com/')).toBe('tls asked.example.com');
  });

  test('is allowed once, and asks again the next time', async () => {
    const first = curl(sandbox, 'http://second.example.com/');
    await asked(sandbox, 'second.example.com');
    await sandbox.answer({ name: 'second.example.com', answer: 'once' });
    expect(await first).toContain('http second.example.com');
    const again = curl(sandbox, 'http://second.example.com/');
    await asked(sandbox, 'second.example.com');
    await sandbox.answer({ name: 'second.example.com', answer: 'refuse' });
    expect(await again).toMatch(failed);
    // Refused once, it cannot wear anybody down by asking again.
    expect(await curl(sandbox, 'http://second.example.com/')).toMatch(failed);
    expect(await sandbox.questions()).toEqual([]);
  });

  test('is held to the name that was answered', async () => {
    const other = curl(
      sandbox,
      '--connect-to',
      'fourth.example.com:443:third.example.com:443',
      'https://fourth.example.com/',
    );
    await asked(sandbox, 'third.example.com');
    await sandbox.answer({ name: 'third.example.com', answer: 'once' });
    expect(await other).not.toContain('tls fourth');
    const loop = curl(sandbox, 'http://loop.example.com/');
    await asked(sandbox, 'loop.example.com');
    await sandbox.answer({ name: 'loop.example.com', answer: 'allow' });
    expect(await loop).toContain('which is this machine or a private network');
  });

  test('goes on when the daemon is killed while it waits, and is answered by the next one', async () => {
    await sandbox.exec(['sh', '-c', '(curl -sS -k https://fifth.example.com/ > /tmp/fifth 2>&1) & sleep 0']);
    const before = await asked(sandbox, 'fifth.example.com');
    await daemon.kill();
    await daemon.restart();
    const now = daemon.client.sandboxes.at(sandbox.id);
    expect(await asked(now, 'fifth.example.com')).toMatchObject({ until_ms: before.until_ms });
    await now.answer({ name: 'fifth.example.com', answer: 'once' });
    const heard = async () => (await now.exec(['cat', '/tmp/fifth'])).stdout === 'tls fifth.example.com';
    await eventually('the page has come', heard);
  });
});

describe('a question', () => {
  test('is settled by a policy, also by one that a person sets meanwhile', async () => {
    const sandbox = await open();
    const page = curl(sandbox, 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    await sandbox.setNetwork({ allow: ['*.example.com'] });
    expect(await page).toBe('tls asked.example.com');
    await sandbox.setNetwork({ allow: ['good.example.com'], deny: [] });
    const second = curl(sandbox, 'https://second.example.com/');
    await asked(sandbox, 'second.example.com');
    await sandbox.answer({ name: 'second.example.com', answer: 'deny' });
    expect(await second).toMatch(failed);
    expect((await sandbox.inspect()).network.deny).toEqual(['second.example.com']);
    const third = curl(sandbox, 'https://third.example.com/');
    await asked(sandbox, 'third.example.com');
    await sandbox.setNetwork({ ask: false });
    expect(await third).toMatch(failed);
    await sandbox.destroy();
  });

  test('is told as an event, is on record and in the list, and the command line answers it', async () => {
    const sandbox = await open();
    const page = curl(sandbox, 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    const coppice = async (...args: string[]) =>
      (await promisify(execFile)(process.execPath, [cli, 'net', sandbox.id, ...args, '--home', daemon.home]))
        .stdout;
    expect(await coppice('--asked')).toContain('--answer asked.example.com:443=allow');
    expect(await coppice('--answer', 'asked.example.com=once')).toContain('was allowed this once');
    expect(await page).toBe('tls asked.example.com');
    expect(await coppice('--asked')).toContain('asks for nothing');
    await expect(coppice('--answer', 'asked.example.com=once')).rejects.toMatchObject({
      stderr: expect.stringContaining('does not ask for asked.example.com'),
    });
    for await (const connection of sandbox.connections()) if (connection.verdict === 'asked') break;
    const told: string[] = [];
    for await (const event of daemon.client.events.stream()) {
      const data = event.data as { name?: string; answer?: string };
      if (event.sandbox_id !== sandbox.id || data.name !== 'asked.example.com') continue;
      told.push(`${event.type} ${data.answer ?? ''}`.trim());
      if (event.type === 'connection.answered') break;
    }
    expect(told).toEqual(['connection.asked', 'connection.answered once']);
    await sandbox.destroy();
  });

  test('cannot be answered with the token of the sandbox itself', async () => {
    const sandbox = await open();
    const page = curl(sandbox, 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    const inside = async (method: string, path: string, body = ''): Promise<string> => {
      const url = `${daemon.url}/v1/sandboxes/${sandbox.id}/${path}`;
      const request = ['-sS', '-X', method, '-H', `authorization: Bearer ${sandbox.token}`, '-d', body];
      const json = ['-H', 'content-type: application/json'];
      const command = [`--net=${internet.host}`, '--', 'curl', ...request, ...json, url];
      return (await promisify(execFile)('nsenter', command)).stdout;
    };
    expect(await inside('GET', 'questions')).toContain('asked.example.com');
    const answer = '{"name":"asked.example.com","answer":"allow"}';
    expect(await inside('POST', 'questions/answer', answer)).toContain('"forbidden"');
    expect(await inside('PATCH', 'network', '{"ask":false,"allow":["*"]}')).toContain('"forbidden"');
    expect(await sandbox.questions()).toHaveLength(1);
    await sandbox.answer({ name: 'asked.example.com', answer: 'refuse' });
    expect(await page).toMatch(failed);
    await sandbox.destroy();
  });

  test('of sixteen at most stays open, and none of them costs another sandbox its own', async () => {
    const sandbox = await open();
    const names = Array.from({ length: 20 }, (_, i) => `n${i}.flood.example.com`);
    await sandbox.exec([
      'sh',
      '-c',
      `for n in ${names.join(' ')}; do (curl -sS -k -m 400 https://$n/ >/dev/null 2>&1; echo $n >> /tmp/ended) & done; sleep 0`,
    ]);
    await eventually('four are refused at once', async () => {
      const { stdout } = await sandbox.exec(['sh', '-c', 'cat /tmp/ended 2>/dev/null | wc -l']);
      return Number(stdout) === 4;
    });
    expect(await sandbox.questions()).toHaveLength(16);
    const other = await open();
    const page = curl(other, 'https://asked.example.com/');
    await asked(other, 'asked.example.com');
    await other.answer({ name: 'asked.example.com', answer: 'once' });
    expect(await page).toBe('tls asked.example.com');
    await sandbox.destroy();
    await other.destroy();
  });

  test('is not opened around by the internet, which adds nothing where a sandbox asks', async () => {
    const sandbox = await open('container', { ask: true, allow_internet: true });
    expect(await curl(sandbox, '--connect-timeout', '3', `http://${server}/`)).toMatch(/connect|timed out/i);
    const page = curl(sandbox, 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    await sandbox.answer({ name: 'asked.example.com', answer: 'once' });
    expect(await page).toBe('tls asked.example.com');
    await sandbox.destroy();
  });

  test('that the gateway was killed over is told as lost, and the program asks anew', async () => {
    const sandbox = await open();
    const page = curl(sandbox, 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    process.kill(gatewayPid(daemon.home), 'SIGKILL');
    expect(await page).toMatch(failed);
    for await (const event of daemon.client.events.stream())
      if (
        event.sandbox_id === sandbox.id &&
        event.type === 'connection.answered' &&
        (event.data as { answer?: string }).answer === 'lost'
      )
        break;
    const again = curl(sandbox, '--retry', '50', '--retry-all-errors', 'https://asked.example.com/');
    await asked(sandbox, 'asked.example.com');
    await sandbox.answer({ name: 'asked.example.com', answer: 'once' });
    expect(await again).toContain('tls asked.example.com');
    await sandbox.destroy();
  });
});
