import { printable } from '@coppice/console';

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';

/** How wide and how colourful the place is that text goes to. */
export interface Look {
  /** Of the terminal; undefined where there is none, and nothing is cut. */
  readonly columns: number | undefined;
  paint(style: Style, text: string): string;
}

export type Cell = string | { readonly text: string; readonly style: Style };

/** A column by its head. `drop`: it goes first where the terminal is too narrow for all of them, lowest number first. */
export type Head = string | { readonly head: string; readonly drop: number };

const gap = 2;
const leastWidth = 6;

const textOf = (cell: Cell): string =>
  printable(typeof cell === 'string' ? cell : cell.text).replaceAll('\n', ' ');
const headOf = (head: Head): string => (typeof head === 'string' ? head : head.head);
const sum = (widths: readonly number[]): number => widths.reduce((all, width) => all + width + gap, -gap);

const cut = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;

/** Left-aligned columns, two spaces apart, as wide as the terminal at most. Without rows it is the sentence that says so. */
export const table = (
  heads: readonly Head[],
  rows: readonly (readonly Cell[])[],
  whenEmpty: string,
  look?: Look,
): string => {
  if (rows.length === 0) return whenEmpty;
  const columns = look?.columns ?? Number.POSITIVE_INFINITY;
  const natural = heads.map((head, column) =>
    Math.max(headOf(head).length, ...rows.map((row) => textOf(row[column] ?? '').length)),
  );
  const shown = shownColumns(heads, natural, columns);
  const widths = fitted(
    shown.map((column) => natural[column]!),
    shown.map((column) => headOf(heads[column]!).length),
    columns,
  );
  const line = (cells: readonly Cell[], paint: (text: string, cell: Cell) => string): string => {
    const parts = shown.map((column, index) => {
      const text = cut(textOf(cells[column] ?? ''), widths[index]!);
      const rest = index === shown.length - 1 ? '' : ' '.repeat(widths[index]! - text.length);
      return { painted: `${paint(text, cells[column] ?? '')}${rest}`, isEmpty: text === '' };
    });
    while (parts.at(-1)?.isEmpty) parts.pop();
    return parts
      .map(({ painted }) => painted)
      .join(' '.repeat(gap))
      .trimEnd();
  };
  return [
    line(heads.map(headOf), (text) => look?.paint('bold', text) ?? text),
    ...rows.map((row) =>
      line(row, (text, cell) =>
        typeof cell === 'string' || look === undefined ? text : look.paint(cell.style, text),
      ),
    ),
  ].join('\n');
};

/** Without those that may be dropped, as far as that is needed. */
const shownColumns = (
  heads: readonly Head[],
  widths: readonly number[],
  columns: number,
): readonly number[] => {
  let shown = heads.map((_, column) => column);
  const droppable = heads
    .flatMap((head, column) => (typeof head === 'string' ? [] : [{ column, drop: head.drop }]))
    .sort((a, b) => a.drop - b.drop);
  for (const { column } of droppable) {
    if (sum(shown.map((one) => widths[one]!)) <= columns) break;
    shown = shown.filter((one) => one !== column);
  }
  return shown;
};

/** The widest gives way first, and none below its head. */
const fitted = (natural: readonly number[], least: readonly number[], columns: number): readonly number[] => {
  const widths = [...natural];
  for (let over = sum(widths) - columns; over > 0; over = sum(widths) - columns) {
    const room = widths.map((width, index) => (width > Math.max(least[index]!, leastWidth) ? width : 0));
    const widest = Math.max(...room);
    if (widest === 0) break;
    widths[room.indexOf(widest)] = widest - 1;
  }
  return widths;
};

/** Names and values in two columns; a value that is too long goes on below itself. */
export const facts = (pairs: readonly (readonly [string, Cell])[], look?: Look): string => {
  const width = Math.max(...pairs.map(([name]) => name.length));
  const room = Math.max(20, (look?.columns ?? Number.POSITIVE_INFINITY) - width - gap);
  return pairs
    .flatMap(([name, cell]) => {
      const [first = '', ...more] = wrapped(printable(typeof cell === 'string' ? cell : cell.text), room);
      const paint = (text: string) =>
        typeof cell === 'string' || look === undefined ? text : look.paint(cell.style, text);
      return [
        `${look?.paint('dim', name.padEnd(width)) ?? name.padEnd(width)}  ${paint(first)}`.trimEnd(),
        ...more.map((text) => `${' '.repeat(width + gap)}${paint(text)}`),
      ];
    })
    .join('\n');
};

/** At spaces where there are any. */
const wrapped = (text: string, width: number): string[] => {
  const lines: string[] = [];
  let rest = text;
  while (rest.length > width) {
    const space = rest.lastIndexOf(' ', width);
    const at = space > 0 ? space : width;
    lines.push(rest.slice(0, at));
    rest = rest.slice(at).trimStart();
  }
  return [...lines, rest];
};
