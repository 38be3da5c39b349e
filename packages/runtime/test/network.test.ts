import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NetworkPolicy } from '../src/network/network.ts';
import { runProgram } from '../src/programs/run-program.ts';
import { NetworkLab, silence } from './network/network-lab.ts';

const closed: NetworkPolicy = {
  allowInternet: false,
  allowInterSandbox: false,
  allowedPorts: [],
  allow: [],
  deny: [],
  allowHostPorts: [],
  names: [],
  deniedNames: [],
};
const internet: NetworkPolicy = { ...closed, allowInternet: true };
const peers: NetworkPolicy = { ...closed, allowInterSandbox: true };
const { server, otherServer, privateServer, metadataServer, hostAddress } = NetworkLab;
const isRefused = /^(refused|silence|closed)$/;

let lab: NetworkLab;
beforeAll(async () => {
  lab = await NetworkLab.open();
});
afterAll(async () => {
  await lab.close();
});

describe('a sandbox without network', () => {
  it('gets no link, no address and no rule', async () => {
    const { network, homeKey } = await lab.network();
    const sandbox = await lab.sandbox();
    expect(await network.apply('sb_a', sandbox.netns, closed)).toEqual({ address: null });
    expect(await sandbox.run('ip', '-brief', 'link')).not.toContain('eth0');
    expect(await lab.remains(homeKey)).toEqual({ links: [], rules: '' });
    expect(await sandbox.tryReach(server, 80)).toMatch(isRefused);
  });
});

describe('a sandbox that may reach the internet', () => {
  it('reaches public addresses behind the address of the host', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const { address } = await network.apply('sb_a', sandbox.netns, internet);
    expect(address).toMatch(/^10\.(19[2-9]|2\d\d)\./);
    expect(await sandbox.reach(server, 80)).toBe(`hello ${hostAddress}`);
  });

  it('reaches neither the host, nor private addresses, nor the metadata service', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const { address } = await network.apply('sb_a', sandbox.netns, internet);
    const gateway = address!.replace(/\.\d+\.\d+$/, '.0.1');
    expect(await lab.host.reach(hostAddress, 7000)).toContain('hello');
    for (const target of [hostAddress, gateway, '127.0.0.1']) {
      expect(await sandbox.tryReach(target, 7000), target).toMatch(isRefused);
    }
    expect(await sandbox.tryReach(privateServer, 80)).toMatch(isRefused);
    expect(await sandbox.tryReach(metadataServer, 80)).toMatch(isRefused);
    expect(await sandbox.reach(server, 80)).toContain('hello');
  });

  it('reaches no service of the host by a port that the host forwards elsewhere', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, internet);
    const backend = await lab.sandbox();
    await lab.host.ip(`link add backend type veth peer name backend netns ${backend.netns}`);
    await lab.host.ip('address add 192.0.2.1/24 dev backend');
    await lab.host.ip('link set dev backend up');
    await backend.ip('address add 192.0.2.2/24 dev backend');
    await backend.ip('link set dev backend up');
    await backend.ip('route add default via 192.0.2.1');
    await backend.listen(80);
    await lab.host.run('nft', 'add table ip lab_forward');
    await lab.host.run('nft', 'add chain ip lab_forward pre { type nat hook prerouting priority dstnat; }');
    const forwarded = `ip daddr ${hostAddress} tcp dport 9090 dnat to 192.0.2.2:80`;
    await lab.host.run('nft', `add rule ip lab_forward pre ${forwarded}`);
    expect(await lab.internet.reach(hostAddress, 9090)).toContain('hello');
    expect(await sandbox.tryReach(hostAddress, 9090)).toMatch(isRefused);
    await lab.host.run('nft', 'delete table ip lab_forward');
  });

  it('is not reached from outside', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const { address } = await network.apply('sb_a', sandbox.netns, internet);
    await sandbox.listen(8000);
    await lab.internet.ip(`route add ${address}/32 via ${hostAddress}`);
    expect(await lab.internet.tryReach(address!, 8000)).toMatch(isRefused);
    await lab.internet.ip(`route delete ${address}/32`);
  });
});

describe('a sandbox that opens connection after connection', () => {
  const many = 6000;
  const few = 5000;
  const tracked = async (peer: { run: typeof lab.host.run }): Promise<number> =>
    Number(await peer.run('cat', '/proc/sys/net/netfilter/nf_conntrack_count'));
  /** A datagram to each of so many ports: the kernel remembers each as a connection for a while. */
  const datagrams = (address: string): string =>
    `for port in $(seq ${many}); do echo > /dev/udp/${address}/$port; done 2>/dev/null; true`;

  it('fills neither the table of the host nor its own, and leaves room to others', async () => {
    const { network } = await lab.network();
    const [greedy, other] = [await lab.sandbox(), await lab.sandbox()];
    await network.apply('sb_greedy', greedy.netns, internet);
    await network.apply('sb_other', other.netns, internet);
    const open = await greedy.open(server, 80);
    const before = await tracked(lab.host);
    await greedy.run('bash', '-c', datagrams(server));
    expect((await tracked(lab.host)) - before).toBeLessThan(few);
    expect(await tracked(greedy)).toBeLessThan(few);
    expect(await other.reach(server, 80)).toContain('hello');
    expect(await open.say()).toContain('hello');
  });

  it('has what goes to itself remembered nowhere', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_alone', sandbox.netns, internet);
    await sandbox.run('bash', '-c', datagrams('127.0.0.1'));
    expect(await tracked(sandbox)).toBeLessThan(100);
    await sandbox.listen(8000);
    expect(await sandbox.reach('127.0.0.1', 8000)).toContain('hello');
  });
});

describe('ports and lists', () => {
  it('let out only to the ports that are allowed', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, { ...internet, allowedPorts: [80, 443] });
    expect(await sandbox.reach(server, 443)).toContain('hello');
    expect(await sandbox.tryReach(server, 8080)).toMatch(isRefused);
  });

  it('let nothing out that an allow list does not name, and open what it names', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, { ...internet, allow: [server, '192.168.77.0/24'] });
    expect(await sandbox.reach(server, 80)).toContain('hello');
    expect(await sandbox.reach(privateServer, 80)).toContain('hello');
    expect(await sandbox.tryReach(otherServer, 80)).toMatch(isRefused);
    await network.apply('sb_a', sandbox.netns, { ...closed, allow: [server] });
    expect(await sandbox.reach(server, 80)).toContain('hello');
    expect(await sandbox.tryReach(otherServer, 80)).toMatch(isRefused);
  });

  it('refuse what a deny list names, also when an allow list names it too', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const allow = ['198.51.100.0/24', '198.51.0.0/16'];
    await network.apply('sb_a', sandbox.netns, { ...internet, allow, deny: [server, server] });
    expect(await sandbox.reach(otherServer, 80)).toContain('hello');
    expect(await sandbox.tryReach(server, 80)).toMatch(isRefused);
  });

  it('open a port of the host by name of the port, at the gateway alone, and close it again under open connections', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const other = await lab.sandbox();
    const { address } = await network.apply('sb_a', sandbox.netns, { ...closed, allowHostPorts: [7000] });
    await network.apply('sb_b', other.netns, internet);
    const gateway = address!.replace(/\.\d+\.\d+$/, '.0.1');
    expect(await sandbox.reach(gateway, 7000)).toBe(`hello ${address}`);
    expect(await sandbox.tryReach(gateway, 7001)).toMatch(isRefused);
    expect(await sandbox.tryReach(hostAddress, 7000)).toMatch(isRefused);
    expect(await sandbox.tryReach(server, 80)).toMatch(isRefused);
    expect(await other.tryReach(gateway, 7000)).toMatch(isRefused);
    // Other fields neither open nor narrow it, but for a denial of the address.
    await network.apply('sb_a', sandbox.netns, {
      ...internet,
      allowedPorts: [80],
      allowHostPorts: [7001, 7001],
    });
    expect(await sandbox.reach(gateway, 7001)).toContain('hello');
    expect(await sandbox.tryReach(gateway, 80)).toMatch(isRefused);
    const connection = await sandbox.open(gateway, 7001);
    await network.apply('sb_a', sandbox.netns, { ...internet, allowHostPorts: [7001], deny: [gateway] });
    expect(await connection.say(silence)).toMatch(isRefused);
    expect(await sandbox.tryReach(gateway, 7001)).toMatch(isRefused);
  });

  it('let the rules of the host hold where those of the sandbox are gone', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const { address } = await network.apply('sb_a', sandbox.netns, { ...closed, allowHostPorts: [7000] });
    const gateway = address!.replace(/\.\d+\.\d+$/, '.0.1');
    await sandbox.run('nft', 'flush', 'ruleset');
    expect(await sandbox.reach(gateway, 7000)).toContain('hello');
    expect(await sandbox.tryReach(gateway, 7001)).toMatch(isRefused);
    expect(await sandbox.tryReach(hostAddress, 7000)).toMatch(isRefused);
  });

  it('never open the host or the metadata service', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, { ...internet, allow: ['0.0.0.0/0'] });
    expect(await sandbox.reach(server, 80)).toContain('hello');
    expect(await sandbox.tryReach(hostAddress, 7000)).toMatch(isRefused);
    expect(await sandbox.tryReach(metadataServer, 80)).toMatch(isRefused);
  });

  it.each([
    { allow: ['198.51.100.300'] },
    { deny: ['198.51.100.0/33'] },
    { allow: ['2001:db8::1'] },
    { deny: ['198.51.100.1; drop'] },
    { allowHostPorts: [65536] },
    { allowedPorts: [0] },
    { allowedPorts: [1.5] },
  ])('are refused when they are no addresses or ports: %o', async (part) => {
    const { network, file } = await lab.network();
    const sandbox = await lab.sandbox();
    const applying = network.apply('sb_a', sandbox.netns, { ...internet, ...part });
    await expect(applying).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(existsSync(file)).toBe(false);
  });
});

describe('sandboxes of one home', () => {
  it('reach each other only where both allow it', async () => {
    const { network } = await lab.network();
    const [a, b] = [await lab.sandbox(), await lab.sandbox()];
    const atA = await network.apply('sb_a', a.netns, peers);
    const atB = await network.apply('sb_b', b.netns, internet);
    await b.listen(8000);
    expect(await a.tryReach(atB.address!, 8000)).toMatch(isRefused);
    await network.apply('sb_b', b.netns, { ...peers, allowInternet: true });
    expect(await a.reach(atB.address!, 8000)).toBe(`hello ${atA.address}`);
    expect(await a.tryReach(server, 80)).toMatch(isRefused);
    await network.apply('sb_a', a.netns, internet);
    expect(await a.tryReach(atB.address!, 8000)).toMatch(isRefused);
  });

  it('do not reach one that they deny', async () => {
    const { network } = await lab.network();
    const [a, b] = [await lab.sandbox(), await lab.sandbox()];
    const atB = await network.apply('sb_b', b.netns, peers);
    await b.listen(8000);
    await network.apply('sb_a', a.netns, { ...peers, deny: [atB.address!] });
    expect(await a.tryReach(atB.address!, 8000)).toMatch(isRefused);
    await network.apply('sb_a', a.netns, peers);
    expect(await a.reach(atB.address!, 8000)).toContain('hello');
  });
});

describe('a policy that changes while a sandbox runs', () => {
  it('ends connections that it forbids, and opens what it allows', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    const before = await network.apply('sb_a', sandbox.netns, internet);
    const connection = await sandbox.open(server, 80);
    expect(await connection.say()).toContain('hello');
    await network.apply('sb_a', sandbox.netns, { ...internet, deny: [server] });
    expect(await connection.say(silence)).toMatch(isRefused);
    expect(await sandbox.tryReach(server, 80)).toMatch(isRefused);
    expect(await network.apply('sb_a', sandbox.netns, internet)).toEqual(before);
    expect(await sandbox.reach(server, 80)).toContain('hello');
  });

  it('takes the link away when it closes the network, and gives the same address back', async () => {
    const { network, homeKey } = await lab.network();
    const sandbox = await lab.sandbox();
    const before = await network.apply('sb_a', sandbox.netns, internet);
    expect(await network.apply('sb_a', sandbox.netns, closed)).toEqual({ address: null });
    expect((await lab.remains(homeKey)).links).toEqual([]);
    expect(await sandbox.tryReach(server, 80)).toMatch(isRefused);
    expect(await network.apply('sb_a', sandbox.netns, internet)).toEqual(before);
    expect(await sandbox.reach(server, 80)).toContain('hello');
  });
});

describe('enforcement', () => {
  it('holds on the host when the rules inside are gone', async () => {
    const { network } = await lab.network();
    const [sandbox, other] = [await lab.sandbox(), await lab.sandbox()];
    const policy = { ...internet, allowedPorts: [80, 7000, 8000], deny: [otherServer] };
    await network.apply('sb_a', sandbox.netns, policy);
    const atOther = await network.apply('sb_b', other.netns, peers);
    await other.listen(8000);
    await sandbox.run('nft', 'flush', 'ruleset');
    expect(await sandbox.reach(server, 80)).toContain('hello');
    for (const [host, port] of [
      [server, 8080],
      [otherServer, 80],
      [privateServer, 80],
      [metadataServer, 80],
      [hostAddress, 7000],
      [atOther.address!, 8000],
    ] as const) {
      expect(await sandbox.tryReach(host, port), host).toMatch(isRefused);
    }
  });

  it('holds inside when the rules of the host let everything pass', async () => {
    const { network, homeKey } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, { ...internet, deny: [otherServer] });
    await lab.host.run('nft', 'flush', 'chain', 'inet', `coppice_${homeKey}`, 'judge');
    expect(await sandbox.reach(server, 80)).toContain('hello');
    expect(await sandbox.reach(otherServer, 80)).toBe('refused');
  });

  it('drops packets that carry the address of another sandbox', async () => {
    const { network } = await lab.network();
    const [forger, victim] = [await lab.sandbox(), await lab.sandbox()];
    const atForger = await network.apply('sb_forger', forger.netns, { ...internet, deny: [server] });
    const atVictim = await network.apply('sb_victim', victim.netns, internet);
    await lab.internet.collectDatagrams(5300);
    await forger.run('nft', 'flush', 'ruleset');
    await forger.ip(`address add ${atVictim.address}/32 dev eth0`);
    expect(await forger.sendDatagram(server, 5300, 'forged', atVictim.address!)).toBe('sent');
    expect(await forger.sendDatagram(server, 5300, 'denied', atForger.address!)).toBe('sent');
    expect(await victim.sendDatagram(server, 5300, 'honest', atVictim.address!)).toBe('sent');
    expect(await lab.internet.datagramsUntil('honest')).toBe('honest');
  });

  it('leaves no IPv6 on the link', async () => {
    const { network } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, internet);
    expect(await sandbox.run('ip', '-6', 'address', 'show', 'dev', 'eth0')).toBe('');
  });
});

describe('release and sweep', () => {
  it('leave nothing of a released sandbox, and may be asked again', async () => {
    const { network, homeKey, file } = await lab.network();
    const sandbox = await lab.sandbox();
    const netns = await network.createNamespace('sb_n');
    await network.apply('sb_a', sandbox.netns, internet);
    await network.apply('sb_n', netns, internet);
    expect((await lab.remains(homeKey)).links).toHaveLength(2);
    for (const id of ['sb_a', 'sb_n', 'sb_a', 'sb_never_seen']) await network.release(id);
    const { links, rules } = await lab.remains(homeKey);
    expect(links).toEqual([]);
    expect(rules).not.toMatch(/policy_|elements/);
    expect(existsSync(netns)).toBe(false);
    expect(JSON.parse(await readFile(file, 'utf8'))).toMatchObject({ slots: {} });
    await network.purge();
    expect(await lab.remains(homeKey)).toEqual({ links: [], rules: '' });
    expect(existsSync(file)).toBe(false);
  });

  it('keep what is to be kept and remove the rest, after a restart too', async () => {
    const { network, homeKey } = await lab.network();
    const [kept, gone] = [await lab.sandbox(), await lab.sandbox()];
    const before = await network.apply('sb_kept', kept.netns, internet);
    await network.apply('sb_gone', gone.netns, internet);
    const netns = await network.createNamespace('sb_gone');
    const { network: restarted } = await lab.network(homeKey);
    await restarted.sweep(new Set(['sb_kept']));
    expect((await lab.remains(homeKey)).links).toHaveLength(1);
    expect(existsSync(netns)).toBe(false);
    expect(await kept.reach(server, 80)).toContain('hello');
    expect(await restarted.apply('sb_kept', kept.netns, internet)).toEqual(before);
    expect(await kept.reach(server, 80)).toContain('hello');
  });

  it('remove links and rules whose record was lost', async () => {
    const { network, homeKey, file } = await lab.network();
    const sandbox = await lab.sandbox();
    await network.apply('sb_a', sandbox.netns, internet);
    await rm(file);
    const { network: restarted } = await lab.network(homeKey);
    await restarted.sweep(new Set());
    expect(await lab.remains(homeKey)).toEqual({ links: [], rules: '' });
  });
});

it('a sandbox that starts again, in a new namespace, has its address again', async () => {
  const { network } = await lab.network();
  const first = await lab.sandbox();
  const before = await network.apply('sb_a', first.netns, internet);
  await first.end();
  const second = await lab.sandbox();
  expect(await network.apply('sb_a', second.netns, internet)).toEqual(before);
  expect(await second.reach(server, 80)).toContain('hello');
});

it('a sandbox in a namespace that was made before it reaches what its policy allows', async () => {
  const { network } = await lab.network();
  const netns = await network.createNamespace('sb_n');
  expect(await network.createNamespace('sb_n')).toBe(netns);
  const { address } = await network.apply('sb_n', netns, peers);
  const sandbox = await lab.sandbox(netns);
  await sandbox.listen(8000);
  const other = await lab.sandbox();
  await network.apply('sb_o', other.netns, peers);
  expect(await other.reach(address!, 8000)).toContain('hello');
  // As gVisor does it, for the next that starts in the same namespace.
  await runProgram(['nsenter', `--net=${netns}`, 'ip', 'address', 'flush', 'dev', 'eth0']);
  expect(await network.apply('sb_n', netns, peers, 'fresh')).toEqual({ address });
  expect(await other.reach(address!, 8000)).toContain('hello');
  await network.release('sb_n');
});

it('homes side by side take different addresses and do not reach each other', async () => {
  const key = await lab.newHomeKey();
  // The same preference for a range: the keys are equal modulo the number of ranges.
  const sibling = `${key.slice(0, 5)}${key[5] === '0' ? '4' : '0'}${key.slice(6)}`;
  const one = await lab.network(key);
  const two = await lab.network(sibling);
  const [a, b] = [await lab.sandbox(), await lab.sandbox()];
  const atA = await one.network.apply('sb_a', a.netns, peers);
  const atB = await two.network.apply('sb_b', b.netns, peers);
  expect(atB.address!.split('.')[1]).not.toBe(atA.address!.split('.')[1]);
  await b.listen(8000);
  await one.network.apply('sb_a', a.netns, { ...peers, allowInternet: true, allow: [atB.address!] });
  expect(await a.tryReach(atB.address!, 8000)).toMatch(isRefused);
  await one.network.purge();
  await two.network.apply('sb_b', b.netns, { ...peers, allowInternet: true });
  expect(await b.reach(server, 80)).toContain('hello');
});

it('many sandboxes attached at once each get an address and rules of their own', async () => {
  const { network, homeKey } = await lab.network();
  const sandboxes = await Promise.all(Array.from({ length: 6 }, () => lab.sandbox()));
  const attached = await Promise.all(
    sandboxes.map((sandbox, i) => network.apply(`sb_${i}`, sandbox.netns, i % 2 === 0 ? internet : peers)),
  );
  expect(new Set(attached.map(({ address }) => address)).size).toBe(6);
  expect((await lab.remains(homeKey)).links).toHaveLength(6);
  expect(await sandboxes[4]!.reach(server, 80)).toContain('hello');
  expect(await sandboxes[3]!.tryReach(server, 80)).toMatch(isRefused);
});

it('says whether the machine can give a network', async () => {
  const { network, homeKey } = await lab.network();
  expect(await network.probe()).toEqual({ usable: true, detail: expect.stringContaining('nftables') });
  expect(await lab.remains(homeKey)).toEqual({ links: [], rules: '' });
});
