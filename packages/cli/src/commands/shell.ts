import { formatCommand } from '@coppice/console';
import { parseWhole } from '../args/number.ts';
import { addProcessOptions, commandLine, type ProcessFlags, processFields } from '../args/process-options.ts';
import { detachKeyName, terminalSize, useTerminal } from '../process/use-terminal.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends ProcessFlags {
  readonly attach?: number;
  readonly list?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  addProcessOptions(
    verb(program, 'shell', `Open a shell in a sandbox; ${detachKeyName} leaves it running`),
    cli,
  )
    .argument('<sandbox>', 'name or id; of a snapshot, a sandbox grows that is gone when the shell ends')
    .argument('[command...]', 'instead of the login shell')
    .option('-a, --attach <number>', 'come back to this terminal', parseWhole)
    .option('--list', 'list the terminals of the sandbox')
    .addHelpText('after', examples('coppice shell dev', 'coppice shell dev --attach 1'))
    .action(async (ref: string, words: string[], options: Options) => {
      const isSnapshot = /^sn_[0-9a-z]{26}$/.test(ref) || ref.includes(':');
      const grown = isSnapshot
        ? (await cli.coppice.snapshots.fork(ref, { signal: cli.signal })).sandboxes[0]
        : undefined;
      const sandbox = grown ?? cli.coppice.sandboxes.at(ref);
      if (options.list) {
        const terminals = await sandbox.terminals.list({ signal: cli.signal });
        const rows = terminals.map((terminal) => [
          String(terminal.id),
          terminal.running ? 'running' : 'ended',
          formatCommand(terminal.command),
        ]);
        cli.out.result(terminals, () => cli.out.table(['NUMBER', 'STATE', 'COMMAND'], rows, 'No terminals.'));
        return;
      }
      const fields = processFields(options);
      const opened =
        options.attach ??
        (
          await sandbox.terminals.open({
            ...(words.length === 0 ? {} : { command: commandLine(words) }),
            ...terminalSize(cli.io.stdout),
            ...fields,
            signal: cli.signal,
          })
        ).id;
      try {
        cli.exitCode = await useTerminal(cli, sandbox, opened);
      } finally {
        await grown?.destroy();
      }
    });
};
