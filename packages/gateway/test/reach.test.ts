import { once } from 'node:events';
import { type AddressInfo, BlockList, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { EgressPolicy } from '../src/egress/policies.ts';
import { Reach, Unreachable } from '../src/egress/reach.ts';

const arrived: Socket[] = [];
const server = createServer((socket) => arrived.push(socket));
beforeAll(async () => {
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
});
afterAll(() => {
  for (const socket of arrived) socket.destroy();
  server.close();
});

const policyOf = (...blocks: [string, number][]): EgressPolicy => {
  const reachable = new BlockList();
  for (const [address, bits] of blocks) reachable.addSubnet(address, bits, 'ipv4');
  return { reachable } as EgressPolicy;
};

const own = Object.values(networkInterfaces()).flatMap((link) => link?.map(({ address }) => address) ?? []);

test.each([
  ...['127.0.0.1', '127.9.9.9', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', '240.0.0.1'],
  ...[
    '::1',
    '::',
    '::127.0.0.1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::FFFF:7F00:1',
    '0:0:0:0:0:ffff:7f00:1',
  ],
  ...[
    '::ffff:169.254.169.254',
    '::ffff:a9fe:a9fe',
    'fe80::1',
    'ff02::1',
    '64:ff9b::7f00:1',
    '64:ff9b:1::7f00:1',
    '2002:7f00:1::',
  ],
  ...[
    '10.0.0.1',
    '172.16.0.1',
    '192.168.0.1',
    '100.64.0.1',
    '198.18.0.1',
    '::ffff:10.0.0.1',
    '::ffff:a00:1',
    'fd00::1',
  ],
  ...own,
])('a name that leads to %s is reached by nobody', async (address) => {
  const family = address.includes(':') ? 6 : 4;
  const reach = new Reach(async () => [{ address, family }]);
  const { port } = server.address() as AddressInfo;
  const connecting = reach.connect(policyOf(), 'rebound.example.com', port);
  await expect(connecting).rejects.toBeInstanceOf(Unreachable);
  expect(arrived).toEqual([]);
});

test('what is this machine is not opened by a policy that allows its address', async () => {
  for (const address of ['127.0.0.1', '::ffff:7f00:1', '::ffff:127.0.0.1']) {
    const reach = new Reach(async () => [{ address, family: address.includes(':') ? 6 : 4 }]);
    const policy = policyOf(['127.0.0.0', 8], ['0.0.0.0', 1]);
    await expect(reach.connect(policy, 'rebound.example.com', 1)).rejects.toBeInstanceOf(Unreachable);
  }
});
