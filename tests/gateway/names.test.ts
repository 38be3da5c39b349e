import type { NetworkConnection } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatewayPid } from './gateway-pid.ts';
import { hostAddress, Internet, nameServer, server } from './internet.ts';

const zone = {
  'good.example.com': server,
  'other.example.com': server,
  'a.wide.example.com': server,
  'b.wide.example.com': server,
  'loop.example.com': '127.0.0.1',
  'host.example.com': hostAddress,
  'lan.example.com': '10.7.7.7',
};
const allow = [
  ...['good.example.com', 'good.example.com:2222', 'good.example.com:8080', '*.wide.example.com'],
  ...['loop.example.com', 'host.example.com', 'lan.example.com', 'absent.example.com'],
];

/** Nobody is at that address: whatever resolver a sandbox asks, the gateway answers. */
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

let internet: Internet;
let daemon: RunningDaemon;

beforeAll(async () => {
  internet = await Internet.open(zone);
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['curl', 'getent'],
    config: { gateway: { resolvers: [`${nameServer}:53`] } },
  });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
});

describe.each(['container', 'gvisor'] as const)('a sandbox of %s whose policy names names', (driver) => {
  let sandbox: Sandbox;
  const sh = async (command: string): Promise<string> => {
    const { stdout, stderr } = await sandbox.exec(['sh', '-c', command]);
    return `${stdout}${stderr}`.trim();
  };
  const curl = (...args: string[]): Promise<string> => sh(`curl -sS -m 20 -k ${args.join(' ')} 2>&1`);

  beforeAll(async () => {
    sandbox = await daemon.client.sandboxes.create({ driver, network: { allow } });
    await sh(resolver);
  });

  test('reaches these over HTTP, TLS and protocols of which nothing is known', async () => {
    expect(await curl('http://good.example.com/')).toBe('http good.example.com GET 0');
    expect(await curl('-d', 'hello', 'http://good.example.com/')).toBe('http good.example.com POST 5');
    expect(await curl('https://good.example.com/')).toBe('tls good.example.com');
    expect(await curl('https://a.wide.example.com/')).toBe('tls a.wide.example.com');
    expect(await curl('http://good.example.com:8080/')).toBe('http good.example.com:8080');
    const talk = 'exec 3<>/dev/tcp/good.example.com/2222; head -n1 <&3; echo hi >&3; head -n1 <&3';
    expect(await sh(`bash -c '${talk}'`)).toBe('welcome\necho hi');
    // One that says nothing, and goes, takes its connection to the outside with it.
    expect(await sh(`bash -c 'exec 3<>/dev/tcp/good.example.com/2222; head -n1 <&3'`)).toBe('welcome');
    let ended = 0;
    for await (const { port, verdict } of sandbox.connections()) {
      if (port === 2222 && verdict === 'allowed') ended += 1;
      if (ended === 2) break;
    }
    expect(ended).toBe(2);
  });

  test('does not reach a name that is not allowed, and the name server outside is never asked for it', async () => {
    await internet.asked();
    expect(await curl('http://other.example.com/')).toContain('Could not resolve host');
    expect(await curl('http://wide.example.com/')).toContain('Could not resolve host');
    expect(await sh('getent hosts c2VjcmV0.tunnel.example.org || echo none')).toBe('none');
    expect(await internet.asked()).toEqual([]);
  });

  test('does not reach the address of an allowed name as an address', async () => {
    for (const url of [`http://${server}/`, `https://${server}/`, `http://${hostAddress}/`])
      expect(await curl('--connect-timeout 3', url), url).toMatch(
        /Failed to connect|Couldn't connect|timed out|Connection/i,
      );
  });

  test('does not reach another name on the same address', async () => {
    expect(await curl('-H "Host: other.example.com"', 'http://good.example.com/')).toContain(
      'asked for other.example.com',
    );
    const sni = '--connect-to other.example.com:443:good.example.com:443 https://other.example.com/';
    expect(await curl(sni)).not.toContain('tls other');
    expect(await curl('-H "Host: other.example.com"', 'http://good.example.com:8080/')).toContain(
      'asked for other.example.com',
    );
    const second = '--next -sS -H "Host: other.example.com" http://good.example.com/';
    expect(await curl('http://good.example.com/', second)).toContain('asked for other.example.com');
  });

  test('does not reach this machine or a private network by a name that leads there', async () => {
    expect(await curl('http://loop.example.com/')).toContain('which is this machine or a private network');
    expect(await curl('http://host.example.com/')).toContain('which is this machine or a private network');
    expect(await curl('http://lan.example.com/')).toContain('which is this machine or a private network');
  });

  test('does not reach anything by IPv6, which no policy opens', async () => {
    expect(await sh('getent ahostsv6 good.example.com | grep -v ::ffff:')).toBe('');
    const addresses = await internet.listenOnIpv6(7777);
    // Each address of this machine, over each link that the sandbox has.
    const urls = addresses.flatMap((address) => [
      `http://[${address}]:7777/`,
      `http://[${address}%25eth0]:7777/`,
    ]);
    expect(urls.length).toBeGreaterThan(0);
    for (const url of urls)
      expect(await curl('-g -6 --connect-timeout 3', `'${url}'`), url).not.toContain('over IPv6');
  });

  test('is told that a name does not exist, and that a port is not allowed, as any program expects', async () => {
    expect(await curl('http://absent.example.com/')).toContain('Could not resolve host');
    expect(await curl('http://a.wide.example.com:8080/')).toMatch(
      /Failed to connect|Couldn't connect|Empty reply|reset/i,
    );
  });

  test('has on record what it reached and what was refused to it', async () => {
    await curl('http://good.example.com/');
    await curl('http://other.example.com/');
    const seen: NetworkConnection[] = [];
    const enough = new AbortController();
    for await (const connection of sandbox.connections({ signal: enough.signal })) {
      seen.push(connection);
      const isThere = (name: string, verdict: string): boolean =>
        seen.some((each) => each.name === name && each.verdict === verdict);
      if (isThere('good.example.com', 'allowed') && isThere('other.example.com', 'refused')) break;
    }
    const reached = seen.find(({ verdict, port }) => verdict === 'allowed' && port === 80);
    expect(reached).toMatchObject({ name: 'good.example.com', remote: server, reason: null });
    expect(reached?.bytes_received).toBeGreaterThan(0);
    expect(seen.find(({ name }) => name === 'other.example.com')?.reason).toBe(
      'other.example.com is not allowed',
    );
  });

  test('loses what a change of its policy takes away, and has at once what it adds', async () => {
    const network = { allow: ['good.example.com:2222'] };
    const other = await daemon.client.sandboxes.create({ driver, network });
    await other.exec(['sh', '-c', resolver]);
    const talk = 'exec 3<>/dev/tcp/good.example.com/2222; head -n1 <&3; touch /tmp/open; cat <&3; echo ended';
    const talking = other.exec(['bash', '-c', talk]);
    await other.exec(['sh', '-c', 'until [ -e /tmp/open ]; do sleep 0.05; done']);
    await other.setNetwork({ allow: ['other.example.com'] });
    expect((await talking).stdout).toContain('ended');
    const { stdout } = await other.exec([
      'sh',
      '-c',
      'curl -sS -m 20 http://other.example.com/; curl -sS -m 20 http://good.example.com/ 2>&1',
    ]);
    expect(stdout).toContain('http other.example.com');
    expect(stdout).toContain('Could not resolve host');
    await other.destroy();
  });

  test('keeps its connections while the daemon is killed and started again', async () => {
    const talk =
      'exec 3<>/dev/tcp/good.example.com/2222; head -n1 <&3; touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; echo hi >&3; head -n1 <&3 > /tmp/heard; touch /tmp/done';
    await sandbox.exec([
      'bash',
      '-c',
      `(${talk}) >/dev/null 2>&1 & until [ -e /tmp/begun ]; do sleep 0.05; done`,
    ]);
    await daemon.kill();
    await daemon.restart();
    expect(await sh('touch /tmp/go; until [ -e /tmp/done ]; do sleep 0.05; done; cat /tmp/heard')).toBe(
      'echo hi',
    );
    expect(await curl('https://good.example.com/')).toBe('tls good.example.com');
  });

  test('reaches names again after the gateway was killed', async () => {
    process.kill(gatewayPid(daemon.home), 'SIGKILL');
    const isBack = async () => (await curl('https://good.example.com/')) === 'tls good.example.com';
    await eventually('the gateway is back', isBack);
  });
});
