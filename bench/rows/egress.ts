import type { Sandbox } from '@coppice/sdk';
import { Internet, nameServer, server, sink } from '../../tests/gateway/internet.ts';
import { elapsedMs } from '../harness/interleave.ts';
import { defineRow } from '../harness/row.ts';
import { atLeast } from '../harness/target.ts';

const gibibyte = 2 ** 30;
const name = 'big.example.com';
const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

/** Two sandboxes of one daemon read from one server: one may reach its address, the other its name. */
export const egress = defineRow({
  name: 'egress',
  title: '1 GiB into a sandbox through the gateway, by name',
  targets: { 'speed of the same by address, without the gateway': atLeast(0.6) },
  run: async (context) => {
    const bytes = context.amount(gibibyte, 2 ** 20);
    const internet = await Internet.open({ [name]: server });
    context.atEnd(() => internet[Symbol.asyncDispose]());
    const daemon = await context.daemon(
      { gateway: { resolvers: [`${nameServer}:53`] } },
      { netns: internet.host },
    );
    const open = async (allow: string): Promise<Sandbox> => {
      const sandbox = await daemon.client.sandboxes.create({ network: { allow: [allow] } });
      await sandbox.exec(['sh', '-c', resolver]);
      return sandbox;
    };
    const read = (sandbox: Sandbox, host: string) => () =>
      elapsedMs(async () => {
        const script = `exec 3<>/dev/tcp/${host}/${sink}; echo ${bytes} >&3; dd of=/dev/null bs=1M <&3 2>&1`;
        const { stdout } = await sandbox.exec(['bash', '-c', script]);
        if (!stdout.includes(`${bytes} bytes`)) throw new Error(`not all of it came: ${stdout}`);
      });
    const measured = await context.interleave(
      {
        ours: read(await open(`${name}:${sink}`), name),
        direct: read(await open(server), server),
      },
      { rounds: 9, budgetS: 40 },
    );
    const { ours, direct } = measured;
    return {
      'speed of the same by address, without the gateway': {
        value: direct.median / ours.median,
        ours,
        peer: direct,
      },
    };
  },
});
