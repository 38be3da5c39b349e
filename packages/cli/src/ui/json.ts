import type { Output, Progress } from './output.ts';

/** For programs: the answer as one JSON document on standard output and nothing else. */
export class JsonOutput implements Output {
  readonly isJson = true;
  readonly #stdout: NodeJS.WritableStream;

  constructor(stdout: NodeJS.WritableStream) {
    this.#stdout = stdout;
  }

  result(value: unknown): void {
    this.#stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  }

  note(): void {}

  during<T>(_label: string, work: (progress: Progress) => Promise<T>): Promise<T> {
    return work({ update: () => undefined });
  }

  readonly columns = undefined;

  /** Nobody asks for text. */
  table(): string {
    return '';
  }

  facts(): string {
    return '';
  }

  paint(_style: string, text: string): string {
    return text;
  }
}
