/** What stands where a value was. */
export type Instead = (found: string) => string;

interface Place {
  readonly form: string;
  readonly at: number;
  /** Where it does not go on like the form to its end, it is none. */
  readonly isWhole: boolean;
  readonly instead: Instead;
}

/** Any run of twice as many characters of a long value holds a whole block of it, and is found. */
const blockChars = 16;
const filterSize = 1 << 16;

/** A number for what begins there, from a few of its characters: cheap, and most texts hold nothing like it. */
const mark = (text: string, at: number): number =>
  (text.charCodeAt(at) * 31 + text.charCodeAt(at + 7) * 1009 + text.charCodeAt(at + 13) * 7919) &
  (filterSize - 1);

/**
 * Finds long values, such as keys and certificates of many lines, and parts of them, and any number of shorter ones, in time
 * that grows with the text alone. A regular expression for some ten thousand characters is one that no engine takes.
 */
export class LongSecrets {
  readonly #blocks = new Map<string, Place[]>();
  readonly #filter = new Uint8Array(filterSize);

  /** What is shorter is none of its business. */
  static readonly leastChars = blockChars;

  get isEmpty(): boolean {
    return this.#blocks.size === 0;
  }

  /** One way in which a value may be written. */
  add(form: string, isWhole: boolean, instead: Instead): void {
    const last = isWhole ? 0 : form.length - blockChars;
    for (let at = 0; at <= last && at + blockChars <= form.length; at += blockChars) {
      const block = form.slice(at, at + blockChars);
      const places = this.#blocks.get(block);
      // A text that repeats itself has the same block many times; one of them will do.
      if (places === undefined) this.#blocks.set(block, [{ form, at, isWhole, instead }]);
      else if (isWhole) places.push({ form, at, isWhole, instead });
      this.#filter[mark(block, 0)] = 1;
    }
  }

  redact(text: string): string {
    const kept: string[] = [];
    let from = 0;
    for (let at = 0; at + blockChars <= text.length; ) {
      const found = this.#filter[mark(text, at)] === 1 ? this.#find(text, at, from) : undefined;
      if (found === undefined) {
        at += 1;
        continue;
      }
      kept.push(text.slice(from, found.start), found.instead(text.slice(found.start, found.end)));
      from = found.end;
      at = found.end;
    }
    return from === 0 ? text : `${kept.join('')}${text.slice(from)}`;
  }

  #find(text: string, at: number, least: number) {
    const places = this.#blocks.get(text.slice(at, at + blockChars)) ?? [];
    const place = places.find(({ isWhole, form }) => !isWhole || text.startsWith(form, at));
    return place === undefined ? undefined : { ...extend(text, at, place, least), instead: place.instead };
  }
}

/** As far as the text goes on like the value, in both directions. */
const extend = (text: string, at: number, { form, at: formAt }: Place, least: number) => {
  let before = 0;
  while (at - before > least && formAt - before > 0 && text[at - before - 1] === form[formAt - before - 1])
    before += 1;
  let after = blockChars;
  while (
    at + after < text.length &&
    formAt + after < form.length &&
    text[at + after] === form[formAt + after]
  )
    after += 1;
  return { start: at - before, end: at + after };
};
