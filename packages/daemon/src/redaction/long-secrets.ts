/** What stands where a value was. */
export type Instead = (found: string) => string;

/** One block of a value that is found by its parts. */
interface Place {
  readonly form: string;
  readonly at: number;
  readonly instead: Instead;
}

interface Whole {
  readonly form: string;
  readonly instead: Instead;
  /** The longest of the others that this one begins with. */
  shorter: Whole | undefined;
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
  readonly #blocks = new Map<string, Place>();
  /** Values that count only as a whole, by the block that they begin with. */
  readonly #wholes = new Map<string, WholeForms>();
  readonly #filter = new Uint8Array(filterSize);

  /** What is shorter is none of its business. */
  static readonly leastChars = blockChars;

  get isEmpty(): boolean {
    return this.#blocks.size === 0 && this.#wholes.size === 0;
  }

  /** One way in which a value may be written. `isWhole`: where a text does not go on like it to its end, it is not found. */
  add(form: string, isWhole: boolean, instead: Instead): void {
    if (form.length < blockChars) return;
    if (isWhole) {
      const block = form.slice(0, blockChars);
      const forms = this.#wholes.get(block) ?? new WholeForms();
      forms.add(form, instead);
      this.#wholes.set(block, forms);
      this.#filter[mark(block, 0)] = 1;
      return;
    }
    for (let at = 0; at + blockChars <= form.length; at += blockChars) {
      const block = form.slice(at, at + blockChars);
      // A text that repeats itself has the same block many times; one of them will do.
      if (!this.#blocks.has(block)) this.#blocks.set(block, { form, at, instead });
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
    const block = text.slice(at, at + blockChars);
    const whole = this.#wholes.get(block)?.find(text, at);
    if (whole !== undefined) return { start: at, end: at + whole.form.length, instead: whole.instead };
    const place = this.#blocks.get(block);
    return place === undefined ? undefined : { ...extend(text, at, place, least), instead: place.instead };
  }
}

/** Forms that begin alike, in order. The longest that a text goes on with is found by few comparisons, however many there are. */
class WholeForms {
  #forms = new Map<string, Whole>();
  #sorted: Whole[] | undefined;
  #longestChars = 0;

  add(form: string, instead: Instead): void {
    if (this.#forms.has(form)) return;
    this.#forms.set(form, { form, instead, shorter: undefined });
    this.#longestChars = Math.max(this.#longestChars, form.length);
    this.#sorted = undefined;
  }

  find(text: string, at: number): Whole | undefined {
    this.#sorted ??= this.#sort();
    const here = text.slice(at, at + this.#longestChars);
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#sorted[middle]!.form <= here) low = middle + 1;
      else high = middle;
    }
    // The last that is not behind it: every form that the text goes on with is this one, or one that this one begins with.
    let candidate = this.#sorted[low - 1];
    const common = candidate === undefined ? 0 : commonChars(candidate.form, here);
    while (candidate !== undefined && candidate.form.length > common) candidate = candidate.shorter;
    return candidate;
  }

  #sort(): Whole[] {
    const sorted = [...this.#forms.values()].sort((a, b) => (a.form < b.form ? -1 : 1));
    let before: Whole | undefined;
    for (const whole of sorted) {
      while (before !== undefined && !whole.form.startsWith(before.form)) before = before.shorter;
      whole.shorter = before;
      before = whole;
    }
    return sorted;
  }
}

const commonChars = (one: string, other: string): number => {
  const shorter = Math.min(one.length, other.length);
  let common = 0;
  while (common < shorter && one.charCodeAt(common) === other.charCodeAt(common)) common += 1;
  return common;
};

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
