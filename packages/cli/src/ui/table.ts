import { printable } from '@coppice/console';

/** Left-aligned columns, two spaces apart. Without rows it is the sentence that says so. */
export const table = (
  heads: readonly string[],
  rows: readonly (readonly string[])[],
  whenEmpty: string,
): string => {
  if (rows.length === 0) return whenEmpty;
  const lines = [heads, ...rows].map((row) => row.map((cell) => printable(cell).replaceAll('\n', ' ')));
  const widths = heads.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
};

/** Names and values in two columns. */
export const facts = (pairs: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`.trimEnd()).join('\n');
};
