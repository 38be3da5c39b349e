import { CoppiceError } from '@coppice/protocol/errors';
import { parsePort } from '../args/number.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly hostPort?: number;
  readonly remove?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'port', 'Forward a port of this machine into a sandbox, or list port forwards')
    .argument('<sandbox>', 'name or id')
    .argument('[port]', 'port inside the sandbox', parsePort)
    .option('--host-port <port>', 'port of this machine, 1024 or above (default: a free one)', parsePort)
    .option('--remove', 'forward it no longer')
    .addHelpText('after', examples('coppice port web 8080', 'coppice port web 8080 --host-port 9000'))
    .action(async (ref: string, port: number | undefined, { hostPort, remove }: Options) => {
      if (port === undefined && (remove || hostPort !== undefined)) {
        throw new CoppiceError('invalid_argument', 'the port inside the sandbox is missing', {
          hint: 'Name it: `coppice port SANDBOX PORT`; without options, `coppice port SANDBOX` lists them.',
        });
      }
      if (remove && hostPort !== undefined) {
        throw new CoppiceError('invalid_argument', '--remove takes no --host-port', {
          hint: 'Name the port inside: `coppice port SANDBOX PORT --remove`.',
        });
      }
      const { ports } = cli.coppice.sandboxes.at(ref);
      const { signal } = cli;
      if (port === undefined) {
        const forwards = await ports.list({ signal });
        const rows = forwards.map((forward) => [
          String(forward.guest_port),
          String(forward.host_port),
          forward.url,
        ]);
        cli.out.result(forwards, () =>
          cli.out.table(['INSIDE', 'HERE', 'URL'], rows, 'No ports are forwarded.'),
        );
      } else if (remove) {
        await ports.remove(port, { signal });
        cli.out.result({ removed: port }, () => `port ${port} is no longer forwarded`);
      } else {
        const forward = await ports.forward(port, { host_port: hostPort, signal });
        cli.out.result(forward, () => forward.url);
      }
    });
};
