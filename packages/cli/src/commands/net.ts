import { addNetworkOptions, type NetworkOptions, networkPatch } from '../args/network-options.ts';
import { describeConnection, describeNetwork } from '../ui/network.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const nothing = {
  allow_internet: false,
  allow_inter_sandbox: false,
  allowed_ports: [],
  allow: [],
  deny: [],
  allow_host_ports: [],
};

export const define: DefineCommand = (program, cli) => {
  addNetworkOptions(verb(program, 'net', 'Show or change what a sandbox may reach, also while it runs'))
    .argument('<sandbox>', 'name or id')
    .option('--no-internet', 'keep it from the internet')
    .option('--no-inter-sandbox', 'keep it from other sandboxes')
    .option('--none', 'first forget all that was allowed or denied')
    .option('--watch', 'show what it reaches by name, and what is refused, until interrupted')
    .addHelpText(
      'after',
      examples(
        'coppice net dev --allow npm --allow api.example.com',
        "coppice net dev --allow '*.example.com:443' --watch",
        'coppice net dev --internet --allow-port 443 --allow-port 53',
        'coppice net dev --allow 198.51.100.7 --allow-port 443',
        'coppice net dev --host-port 5432',
        'coppice net dev --none',
      ),
    )
    .action(
      async (
        ref: string,
        options: NetworkOptions & { readonly none?: boolean; readonly watch?: boolean },
      ) => {
        const sandbox = cli.coppice.sandboxes.at(ref);
        const { signal } = cli;
        const patch = { ...(options.none ? nothing : {}), ...networkPatch(options) };
        const changed = Object.keys(patch).length > 0;
        const info = changed
          ? (await sandbox.setNetwork(patch, { signal })).info
          : await sandbox.inspect({ signal });
        if (info === undefined) return;
        if (options.watch) {
          for await (const connection of sandbox.connections({ signal }))
            cli.io.stdout.write(
              `${cli.out.isJson ? JSON.stringify(connection) : describeConnection(info, connection)}\n`,
            );
        }
        cli.out.result(info.network, () => `${info.name}: ${describeNetwork(info.network)}`);
      },
    );
};
