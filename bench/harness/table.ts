import type { RowResult, TargetResult } from './results.ts';
import type { Summary } from './summary.ts';
import { targetText } from './target.ts';

const heading = ['work', 'target', 'measured', 'kept?', 'ours: median, p95', 'peer: median, p95'];

/** One line for each target, as wide as the widest of each column. */
export const resultTable = (rows: readonly RowResult[]): string => {
  const lines = [heading, ...rows.flatMap(linesOf)];
  const widths = heading.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .toSpliced(1, 0, widths.map((width) => '─'.repeat(width)).join('  '))
    .join('\n');
};

export const valueText = ({ value, target }: TargetResult): string =>
  `${Number(value.toPrecision(3))} ${target.unit}`.trim();

const linesOf = (row: RowResult): string[][] =>
  row.not_measured === null
    ? row.results.map((result) => [
        `${row.name}: ${result.against}`,
        targetText(result.target),
        valueText(result),
        result.kept ? 'yes' : 'NO',
        times(result.ours),
        times(result.peer),
      ])
    : [[row.name, '', 'not measured', '', row.not_measured]];

const times = (summary: Summary | undefined): string =>
  summary === undefined ? '' : `${ms(summary.median)}, ${ms(summary.p95)} (${summary.count})`;

const ms = (value: number): string => `${Number(value.toPrecision(3))} ms`;
