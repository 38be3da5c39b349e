import { CoppiceError } from '@coppice/protocol';

const quote = 0x22;
const comma = 0x2c;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** More than any call needs. A value costs a hundred times the memory and time of a byte of text. */
const mostValues = 20_000;
const mostLevels = 64;

/**
 * Follows a JSON document as it comes in and refuses one of too many values or levels, so that parsing it stays short.
 * Whether it is JSON at all is for the parser to say.
 */
export class JsonShape {
  #values = 0;
  #levels = 0;
  #inString = false;
  #escaped = false;

  feed(bytes: Uint8Array): void {
    let inString = this.#inString;
    let escaped = this.#escaped;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at];
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === backslash) escaped = true;
        else if (byte === quote) inString = false;
      } else if (byte === quote) inString = true;
      else if (byte === comma) this.#count();
      else if (byte === openBracket || byte === openBrace) this.#open();
      else if (byte === closeBracket || byte === closeBrace) this.#levels -= 1;
    }
    this.#inString = inString;
    this.#escaped = escaped;
  }

  #open(): void {
    this.#levels += 1;
    if (this.#levels > mostLevels) throw tooLarge(`is nested deeper than ${mostLevels} levels`);
    this.#count();
  }

  #count(): void {
    this.#values += 1;
    if (this.#values > mostValues) throw tooLarge(`has more than ${mostValues} values`);
  }
}

const tooLarge = (what: string): CoppiceError =>
  new CoppiceError('too_large', `the JSON document ${what}`, {
    hint: 'Send less at once; put content into a file, with the call that writes one.',
  });
