import { styleText } from 'node:util';
import type { Output, Progress, Style } from './output.ts';
import { ProgressLine } from './progress.ts';

interface TextStreams {
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
}

/** For people: tables and sentences; colour and moving lines only on a terminal. */
export class TextOutput implements Output {
  readonly isJson = false;
  readonly #stdout: NodeJS.WriteStream;
  readonly #stderr: NodeJS.WriteStream;
  readonly #colour: boolean;

  constructor({ stdout, stderr, env }: TextStreams) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.#colour = stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  }

  result(_value: unknown, text: () => string): void {
    const shown = text();
    if (shown !== '') this.#stdout.write(`${shown}\n`);
  }

  note(text: string): void {
    this.#stderr.write(`${text}\n`);
  }

  async during<T>(label: string, work: (progress: Progress) => Promise<T>): Promise<T> {
    const line = new ProgressLine(this.#stderr, label);
    try {
      return await work(line);
    } finally {
      line.end();
    }
  }

  paint(style: Style, text: string): string {
    return this.#colour ? styleText(style, text, { validateStream: false }) : text;
  }
}
