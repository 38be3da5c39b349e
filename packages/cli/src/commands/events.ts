import { formatCommand, printableName } from '@coppice/console';
import { parseWhole } from '../args/number.ts';
import { Interruption } from '../interruption.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface Options {
  readonly follow?: boolean;
  readonly after?: number;
  readonly sandbox?: string;
  readonly type?: string;
}

const dataText = (data: Readonly<Record<string, unknown>>): string =>
  Object.entries(data)
    .map(
      ([key, value]) =>
        `${key}=${formatCommand([typeof value === 'string' ? value : JSON.stringify(value)])}`,
    )
    .join(' ');

export const define: DefineCommand = (program, cli) => {
  verb(program, 'events', 'Show events; with --follow, as they happen')
    .option('-f, --follow', 'go on as events happen; with --json one document per line')
    .option('--after <seq>', 'only events after this sequence number', parseWhole)
    .option('--sandbox <sandbox>', 'only of this sandbox')
    .option('--type <type>', 'only of this type')
    .action(async ({ follow, after, sandbox, type }: Options) => {
      const filter = {
        ...(after === undefined ? {} : { after }),
        ...(sandbox === undefined ? {} : { sandbox }),
        ...(type === undefined ? {} : { type }),
        signal: cli.signal,
      };
      const line = (event: Awaited<ReturnType<typeof cli.coppice.events.list>>['events'][number]): string =>
        printableName(
          `${event.seq}  ${event.at}  ${event.type}  ${event.sandbox_id ?? '-'}  ${dataText(event.data)}`.trimEnd(),
        );
      if (!follow) {
        const { events } = await cli.coppice.events.list(filter);
        cli.out.result(events, () => events.map(line).join('\n'));
        return;
      }
      for await (const event of cli.coppice.events.stream(filter)) {
        cli.io.stdout.write(`${cli.out.isJson ? JSON.stringify(event) : line(event)}\n`);
      }
      // The stream ends quietly when the signal fires.
      cli.exitCode = Interruption.of(cli.signal)?.exitCode ?? 0;
    });
};
