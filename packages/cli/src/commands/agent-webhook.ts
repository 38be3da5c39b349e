import { printableName } from '@coppice/console';
import type { Command } from 'commander';
import { parseWhole } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { table } from '../ui/table.ts';
import { examples, verb } from '../verb.ts';

interface AddOptions {
  readonly run?: string;
  readonly types?: string;
  readonly after?: number;
}

export function defineWebhooks(agent: Command, cli: Cli): void {
  const { signal } = cli;
  const webhook = verb(agent, 'webhook', 'Post events of runs to a URL, signed and in order');
  verb(webhook, 'add', 'Add a webhook; prints the secret of its signatures, once')
    .argument('<url>')
    .option('--run <run>', 'only of this run (default: of every run, from now on)')
    .option('--types <types>', 'types of events with commas between, such as `run.state,agent.*`')
    .option('--after <number>', 'events of the run after this number (0: all)', parseWhole)
    .addHelpText(
      'after',
      examples(
        'coppice agent webhook add https://example.org/hook --types run.state',
        'coppice agent webhook add https://example.org/hook --run tests --after 0',
      ),
    )
    .action(async (url: string, { run, types, after }: AddOptions) => {
      const added = await cli.coppice.runs.webhooks.add(
        {
          url,
          ...(run === undefined ? {} : { run }),
          ...(types === undefined ? {} : { types }),
          ...(after === undefined ? {} : { after }),
        },
        { signal },
      );
      cli.out.result(added, () => `${added.id}  ${added.secret}`);
    });
  verb(webhook, 'ls', 'List webhooks, and how many events wait for each').action(async () => {
    const found = await cli.coppice.runs.webhooks.list({ signal });
    const rows = found.map(({ id, url, run_id, types, state, waiting, failure }) => [
      id,
      state,
      run_id ?? 'all runs',
      types ?? 'all',
      String(waiting),
      printableName(failure === null ? url : `${url}: ${failure}`),
    ]);
    cli.out.result(found, () =>
      table(['ID', 'STATE', 'RUN', 'TYPES', 'WAITING', 'URL'], rows, 'No webhooks.'),
    );
  });
  verb(webhook, 'resume', 'Resume a webhook that was stopped, or send events again')
    .argument('<webhook>', 'its id')
    .option('--after <number>', 'send events after this number again, for a webhook of one run', parseWhole)
    .action(async (id: string, { after }: { readonly after?: number }) => {
      const resumed = await cli.coppice.runs.webhooks.resume(id, {
        ...(after === undefined ? {} : { after }),
        signal,
      });
      cli.out.result(resumed, () => `${id} is ${resumed.state}`);
    });
  verb(webhook, 'rm', 'Remove a webhook')
    .argument('<webhook>', 'its id')
    .action(async (id: string) => {
      await cli.coppice.runs.webhooks.remove(id, { signal });
      cli.out.result({ removed: id }, () => `removed ${id}`);
    });
}
