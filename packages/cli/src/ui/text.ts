import { styleText } from 'node:util';
import { printable } from '@coppice/console';
import type { Output, Progress, Style } from './output.ts';
import { ProgressLine } from './progress.ts';
import { type Cell, facts, type Head, table } from './table.ts';

interface TextStreams {
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
}

/** What `paint` writes. */
const ownStyles = /(\x1b\[(?:1|2|22|3[0-9])m)/;

/** Whatever a command forgot to check: text from a sandbox or a server neither moves the cursor nor hides what was printed before. */
const harmless = (text: string): string =>
  text
    .split(ownStyles)
    .map((part, index) => (index % 2 === 1 ? part : printable(part)))
    .join('');

/** Colours for a terminal that wants them, and nothing but the text elsewhere. */
export const painter = (
  stream: NodeJS.WriteStream,
  env: NodeJS.ProcessEnv,
): ((style: Style, text: string) => string) => {
  const isColoured = stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  return (style, text) =>
    isColoured && text !== '' ? styleText(style, text, { validateStream: false }) : text;
};

/** For people: tables and sentences; colour and moving lines only on a terminal. */
export class TextOutput implements Output {
  readonly isJson = false;
  readonly paint: Output['paint'];
  readonly #stdout: NodeJS.WriteStream;
  readonly #stderr: NodeJS.WriteStream;

  constructor({ stdout, stderr, env }: TextStreams) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.paint = painter(stdout, env);
  }

  /** To a program it goes as it is: a patch must not be changed on its way. */
  result(_value: unknown, text: () => string): void {
    const shown = text();
    if (shown !== '') this.#stdout.write(`${this.#stdout.isTTY === true ? harmless(shown) : shown}\n`);
  }

  note(text: string): void {
    this.#stderr.write(`${harmless(text)}\n`);
  }

  async during<T>(label: string, work: (progress: Progress) => Promise<T>): Promise<T> {
    const line = new ProgressLine(this.#stderr, label);
    try {
      return await work(line);
    } finally {
      line.end();
    }
  }

  /** Asked each time: a terminal may change its size. */
  get columns(): number | undefined {
    return this.#stdout.isTTY === true ? this.#stdout.columns : undefined;
  }

  table(heads: readonly Head[], rows: readonly (readonly Cell[])[], whenEmpty: string): string {
    return table(heads, rows, whenEmpty, this);
  }

  facts(pairs: readonly (readonly [string, Cell])[]): string {
    return facts(pairs, this);
  }
}
