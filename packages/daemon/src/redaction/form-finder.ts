const filterSize = 1 << 16;
const [lineFeed, carriageReturn] = [0x0a, 0x0d];

interface Found {
  readonly start: number;
  readonly end: number;
}

/**
 * Finds any number of forms at once (Aho, Corasick): each character of a text is looked at once, whatever the forms are. A
 * regular expression of all forms would try each of them at every place, and whoever decides both can make that take minutes.
 */
export class FormFinder {
  readonly #next: Map<number, number>[] = [new Map()];
  readonly #fallback: number[] = [0];
  /** The length of the longest form that ends in a state; 0: none does. */
  readonly #longest: number[] = [0];
  /** Most places of most texts begin no form. */
  readonly #begins = new Uint8Array(filterSize);
  readonly #overLines: boolean;

  /** `overLines`: a form is found where line ends break it, too. */
  constructor(forms: Iterable<string>, { overLines }: { readonly overLines: boolean }) {
    this.#overLines = overLines;
    for (const form of forms) if (form !== '') this.#add(form);
    this.#link();
  }

  /** What `instead` makes of each found stretch stands in its place; forms that overlap are one stretch. */
  replace(text: string, instead: (found: string) => string): string {
    const found = this.#find(text);
    if (found.length === 0) return text;
    const kept: string[] = [];
    let from = 0;
    for (const { start, end } of found) {
      kept.push(text.slice(from, start), instead(text.slice(start, end)));
      from = end;
    }
    return kept.join('') + text.slice(from);
  }

  #add(form: string): void {
    let state = 0;
    this.#begins[form.charCodeAt(0)] = 1;
    for (let at = 0; at < form.length; at += 1) {
      const code = form.charCodeAt(at);
      let next = this.#next[state]!.get(code);
      if (next === undefined) {
        next = this.#next.length;
        this.#next[state]!.set(code, next);
        this.#next.push(new Map());
        this.#fallback.push(0);
        this.#longest.push(0);
      }
      state = next;
    }
    this.#longest[state] = form.length;
  }

  #link(): void {
    const waiting = [...this.#next[0]!.values()];
    for (let index = 0; index < waiting.length; index += 1) {
      const state = waiting[index]!;
      for (const [code, next] of this.#next[state]!) {
        this.#fallback[next] = this.#step(this.#fallback[state]!, code);
        waiting.push(next);
      }
      this.#longest[state] = Math.max(this.#longest[state]!, this.#longest[this.#fallback[state]!]!);
    }
  }

  #step(from: number, code: number): number {
    let state = from;
    for (;;) {
      const next = this.#next[state]!.get(code);
      if (next !== undefined) return next;
      if (state === 0) return 0;
      state = this.#fallback[state]!;
    }
  }

  #find(text: string): Found[] {
    const found: Found[] = [];
    const skips = this.#overLines && /[\r\n]/.test(text);
    /** Where each character is that is not skipped. */
    const places = skips ? new Int32Array(text.length) : undefined;
    let seen = 0;
    let state = 0;
    for (let at = 0; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (places !== undefined) {
        if (code === lineFeed || code === carriageReturn) continue;
        places[seen] = at;
      }
      seen += 1;
      if (state === 0 && this.#begins[code] === 0) continue;
      state = this.#step(state, code);
      const length = this.#longest[state]!;
      if (length === 0) continue;
      const first = seen - length;
      let start = places === undefined ? first : places[first]!;
      while (found.length > 0 && found.at(-1)!.end > start) start = Math.min(start, found.pop()!.start);
      found.push({ start, end: at + 1 });
    }
    return found;
  }
}
