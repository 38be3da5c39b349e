import type { Costs } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseDurationMs } from '../args/duration.ts';
import type { Cli } from '../cli.ts';
import { formatMicros } from '../ui/money.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly by: string;
  readonly since?: number;
  readonly sandbox?: string;
  readonly project?: string;
  readonly model?: string;
  readonly csv?: boolean;
}

type Row = Costs['rows'][number];

const numbers = ['calls', 'input', 'cache_read', 'output', 'reasoning', 'cost_micros'] as const;

/** Quoted where it must be; a formula of a spreadsheet becomes text. */
const csvCell = (value: string | number): string => {
  const text = /^[=+@-]/.test(String(value)) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const asCsv = ({ by, rows }: Costs): string =>
  [
    [...by, ...numbers],
    ...rows.map((row) => [...by.map((key) => row.key[key] ?? ''), ...numbers.map((n) => row[n])]),
  ]
    .map((cells) => cells.map(csvCell).join(','))
    .join('\n');

const asTable = (cli: Cli, { by, rows, total }: Costs): string => {
  const cells = (row: Omit<Row, 'key'>): string[] => [
    String(row.calls),
    String(row.input + row.cache_write5m + row.cache_write1h),
    String(row.cache_read),
    String(row.output),
    `${row.estimated > 0 ? '~' : ''}${formatMicros(row.cost_micros)}`,
  ];
  const head = ['CALLS', 'INPUT', 'CACHED', 'OUTPUT', 'COST'];
  const lines = [
    ...rows.map((row) => [...by.map((key) => row.key[key] ?? '-'), ...cells(row)]),
    ...(by.length === 0
      ? [cells(total)]
      : [[...by.map((_, i) => (i === 0 ? 'total' : '')), ...cells(total)]]),
  ];
  const notes = [
    ...(total.unpriced > 0 ? [`${total.unpriced} calls have no price and are in no cost.`] : []),
    ...(total.estimated > 0 ? [`~ ${total.estimated} calls ended early; their tokens are estimated.`] : []),
    ...(total.running > 0 ? [`${total.running} calls are running.`] : []),
  ];
  return [cli.out.table([...by.map((key) => key.toUpperCase()), ...head], lines, 'No calls.'), ...notes].join(
    '\n',
  );
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'costs', 'Show what model calls used and cost')
    .option(
      '--by <what>',
      'rows by these: sandbox, run, agent, project, model, upstream, outcome, day',
      'model',
    )
    .option('--since <time>', 'only calls of the last 12h, 7d, …', parseDurationMs)
    .option('--sandbox <sandbox>', 'only of this sandbox; one that is gone by its id')
    .option('--project <project>', 'only of this project')
    .option('--model <model>', 'only of this model')
    .option('--csv', 'as comma-separated values')
    .addHelpText(
      'after',
      examples('coppice costs', 'coppice costs --by day,model --since 7d', 'coppice costs --csv'),
    )
    .action(async ({ by, since, csv, sandbox, project, model }: Options) => {
      if (csv && cli.out.isJson)
        throw new CoppiceError('invalid_argument', '--csv and --json exclude each other');
      const costs = await cli.coppice.costs({
        by,
        sandbox,
        project,
        model,
        ...(since === undefined ? {} : { since_ms: Date.now() - since }),
        signal: cli.signal,
      });
      cli.out.result(costs, () => (csv ? asCsv(costs) : asTable(cli, costs)));
    });
};
