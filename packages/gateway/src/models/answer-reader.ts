import type { Dialect, Meter } from './dialect.ts';
import { JsonScanner } from './json-scanner.ts';
import type { Usage } from './usage.ts';

const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const dataField = Buffer.from('data:');

/**
 * Reads what an answer reports about itself while its bytes pass. An answer is one JSON document, or a stream of events
 * with a document each. It keeps no more than the values that it looks for, however long a line or a document is.
 */
export class AnswerReader {
  readonly #meter: Meter;
  readonly #scanner: JsonScanner;
  readonly #isStream: boolean;
  #textBytes = 0;
  /** How much of `data:` the line has matched; -1 in a line that is something else. */
  #matched = 0;
  #lineIsEmpty = true;
  #afterReturn = false;

  constructor(dialect: Dialect, contentType: string) {
    this.#meter = dialect.meter();
    this.#isStream = /^text\/event-stream\b/i.test(contentType);
    this.#scanner = new JsonScanner(dialect.answerFields, (found) => {
      // Two bytes are the quotes.
      if (found.name === 'text') this.#textBytes += found.end - found.start - 2;
      else this.#hear(found.name, found.text);
    });
  }

  feed(chunk: Buffer): void {
    if (this.#isStream) this.#feedLines(chunk);
    else this.#scanner.feed(chunk);
  }

  get usage(): Partial<Usage> {
    return this.#meter.usage;
  }

  get isFinal(): boolean {
    return this.#meter.isFinal;
  }

  get model(): string | undefined {
    return this.#meter.model;
  }

  /** Bytes of what the model wrote: text, thoughts, arguments of tools. */
  get textBytes(): number {
    return this.#textBytes;
  }

  #hear(name: string, text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return; // an upstream that sends no JSON reports nothing, and the call is estimated
    }
    this.#meter.value(name, value);
  }

  #feedLines(chunk: Buffer): void {
    let index = 0;
    while (index < chunk.length) {
      if (this.#matched === dataField.length || this.#matched === -1) {
        const end = endOfLine(chunk, index);
        if (end > index && this.#matched !== -1) this.#scanner.feed(chunk.subarray(index, end));
        index = end;
        if (end === chunk.length) return;
      }
      const byte = chunk[index]!;
      index += 1;
      if (byte === lineFeed || byte === carriageReturn) {
        const isSecondHalf = byte === lineFeed && this.#afterReturn;
        this.#afterReturn = byte === carriageReturn;
        if (!isSecondHalf) this.#endLine();
        continue;
      }
      this.#afterReturn = false;
      this.#lineIsEmpty = false;
      if (this.#matched >= 0) this.#matched = byte === dataField[this.#matched] ? this.#matched + 1 : -1;
    }
  }

  #endLine(): void {
    // Lines of one event are one document; an empty line ends it.
    if (this.#lineIsEmpty) this.#scanner.reset();
    this.#matched = 0;
    this.#lineIsEmpty = true;
  }
}

const endOfLine = (chunk: Buffer, from: number): number => {
  const feed = chunk.indexOf(lineFeed, from);
  const upTo = feed === -1 ? chunk.length : feed;
  const back = chunk.subarray(from, upTo).indexOf(carriageReturn);
  return back === -1 ? upTo : from + back;
};
