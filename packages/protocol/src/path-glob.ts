type Token =
  | { readonly kind: 'one'; readonly is: (character: string) => boolean }
  /** Any number of characters but slashes. */
  | { readonly kind: 'part' }
  /** Any number of whole directories, with the slash behind each. */
  | { readonly kind: 'directories' }
  | { readonly kind: 'all' };

/** What `{a,b}` may stand for in one pattern. */
const mostVariants = 100;

export interface PathGlobOptions {
  /** `**` stands for any number of directories, and `[!a]` for what `[^a]` does. */
  readonly deep?: boolean;
  /** `{a,b}` stands for either. */
  readonly braces?: boolean;
}

/**
 * A pattern of paths: `*` and `?` stand for anything but a slash, `[a-z]` for one of some characters; names that begin with a dot
 * are names like others. Without options it reads as Go's filepath.Match does. To match takes at most the product of both lengths: patterns and paths come from strangers, and a regular
 * expression of several stars takes for ever.
 */
export class PathGlob {
  readonly #variants: readonly (readonly Token[])[];

  constructor(pattern: string, { deep = false, braces = false }: PathGlobOptions = {}) {
    this.#variants = (braces ? expand(pattern) : [pattern]).flatMap((each) => {
      const tokens = read(each, deep);
      return tokens === undefined ? [] : [tokens];
    });
  }

  matches(path: string): boolean {
    return this.#variants.some((tokens) => matchesAll(tokens, path));
  }
}

/** Undefined: it is no pattern, and matches nothing. */
function read(pattern: string, deep: boolean): Token[] | undefined {
  const tokens: Token[] = [];
  const characters = [...pattern];
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at]!;
    const isFirst = at === 0 || characters[at - 1] === '/';
    if (character === '*' && deep && characters[at + 1] === '*') {
      while (characters[at + 1] === '*') at += 1;
      if (isFirst && characters[at + 1] === '/') {
        at += 1;
        tokens.push({ kind: 'directories' });
      } else tokens.push({ kind: 'all' });
    } else if (character === '*') {
      if (tokens.at(-1)?.kind !== 'part') tokens.push({ kind: 'part' });
    } else if (character === '?') tokens.push({ kind: 'one', is: (given) => given !== '/' });
    else if (character === '[') {
      const end = characters.indexOf(']', at + 2);
      if (end < 0) return undefined;
      tokens.push({ kind: 'one', is: oneOf(characters.slice(at + 1, end), deep) });
      at = end;
    } else {
      const isEscape = character === '\\' && at + 1 < characters.length;
      if (isEscape) at += 1;
      const wanted = characters[at]!;
      tokens.push({ kind: 'one', is: (given) => given === wanted });
    }
  }
  return tokens;
}

function oneOf(given: readonly string[], deep: boolean): (character: string) => boolean {
  const negated = given[0] === '^' || (deep && given[0] === '!');
  const members = negated ? given.slice(1) : given;
  const ranges: (readonly [string, string])[] = [];
  for (let at = 0; at < members.length; at += 1) {
    const from = members[at]!;
    const isRange = members[at + 1] === '-' && at + 2 < members.length;
    ranges.push([from, isRange ? members[at + 2]! : from]);
    if (isRange) at += 2;
  }
  return (character) =>
    character !== '/' && ranges.some(([from, to]) => character >= from && character <= to) !== negated;
}

/** All that `{a,b}` stands for; a brace without its other half stands for itself. */
function expand(pattern: string): string[] {
  let variants = [''];
  for (let at = 0; at < pattern.length; ) {
    const start = pattern.indexOf('{', at);
    const end = start < 0 ? -1 : pattern.indexOf('}', start);
    if (end < 0) return variants.map((variant) => variant + pattern.slice(at));
    const choices = pattern.slice(start + 1, end).split(',');
    if (variants.length * choices.length > mostVariants)
      return variants.map((variant) => variant + pattern.slice(at));
    const before = pattern.slice(at, start);
    variants = variants.flatMap((variant) => choices.map((choice) => variant + before + choice));
    at = end + 1;
  }
  return variants;
}

/** Goes through the path once, at all places of the pattern at the same time. */
function matchesAll(tokens: readonly Token[], path: string): boolean {
  let places = new Set<number>();
  const enter = (into: Set<number>, place: number, isStart: boolean): void => {
    if (into.has(place)) return;
    into.add(place);
    const kind = tokens[place]?.kind;
    if (kind === 'part' || kind === 'all' || (kind === 'directories' && isStart))
      enter(into, place + 1, isStart);
  };
  enter(places, 0, true);
  for (const character of path) {
    const next = new Set<number>();
    const isStart = character === '/';
    for (const place of places) {
      const token = tokens[place];
      if (token === undefined) continue;
      if (token.kind === 'one') {
        if (token.is(character)) enter(next, place + 1, isStart);
      } else if (token.kind !== 'part' || !isStart) enter(next, place, isStart);
    }
    if (next.size === 0) return false;
    places = next;
  }
  return places.has(tokens.length);
}
