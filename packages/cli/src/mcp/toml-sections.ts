/** A table of a TOML file, from its header on; the first of all has none. */
export interface TomlSection {
  readonly path: readonly string[];
  /** Its header is written with quotes, or as one of a list. */
  readonly isPlain: boolean;
  /** The first part of each key that is set in it. */
  readonly keys: readonly string[];
  readonly lines: readonly string[];
}

const part = String.raw`(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')`;
const dotted = String.raw`${part}(?:\s*\.\s*${part})*`;
const headerLine = new RegExp(String.raw`^\s*\[(\[?)\s*(${dotted})\s*\](\]?)\s*(?:#.*)?$`);
const keyLine = new RegExp(String.raw`^\s*(${dotted})\s*=\s*(?=\S)`);
const idleLine = /^\s*(?:#.*)?$/;

const partsOf = (text: string): string[] =>
  (text.match(new RegExp(part, 'g')) ?? []).map((found) => found.replace(/^["']|["']$/g, ''));

/**
 * Cuts a file into its tables, as they are. Undefined where it is no TOML as far as that can be told without reading the
 * values; texts and lists over several lines are known, so that what stands in them is not taken for a table.
 */
export const tomlSections = (text: string): TomlSection[] | undefined => {
  let lines: string[] = [];
  let keys: string[] = [];
  let header = { path: [] as string[], isPlain: true };
  const sections: TomlSection[] = [];
  const finish = () => sections.push({ ...header, keys, lines });
  let open: ValueState | undefined;
  for (const line of text.split('\n')) {
    if (open !== undefined) {
      open = scanValue(line, open);
    } else if (!idleLine.test(line)) {
      const found = headerLine.exec(line);
      const key = keyLine.exec(line);
      if (found !== null && found[1] === found[3]) {
        finish();
        lines = [];
        keys = [];
        header = { path: partsOf(found[2]!), isPlain: found[1] === '' && !/["']/.test(found[2]!) };
      } else if (key !== null) {
        keys.push(partsOf(key[1]!)[0]!);
        open = scanValue(line.slice(key[0].length), { depth: 0, quote: '' });
      } else return undefined;
    }
    if (open === 'broken') return undefined;
    lines.push(line);
  }
  finish();
  return open === undefined ? sections : undefined;
};

type ValueState = { readonly depth: number; readonly quote: string } | 'broken';

/** What is still open at the end of a line; undefined where the value is complete. */
const scanValue = (line: string, state: ValueState): ValueState | undefined => {
  if (state === 'broken') return state;
  let { depth, quote } = state;
  for (let at = 0; at < line.length; ) {
    const rest = line.slice(at);
    if (quote !== '') {
      const isEscape = quote.startsWith('"') && rest.startsWith('\\');
      const ends = !isEscape && rest.startsWith(quote);
      at += isEscape ? 2 : ends ? quote.length : 1;
      if (ends) quote = '';
      continue;
    }
    if (rest.startsWith('#')) break;
    quote = ['"""', "'''", '"', "'"].find((mark) => rest.startsWith(mark)) ?? '';
    if (/^[[{]/.test(rest)) depth += 1;
    if (/^[\]}]/.test(rest)) depth -= 1;
    at += Math.max(1, quote.length);
  }
  if (quote.length === 1 || depth < 0) return 'broken';
  return quote === '' && depth === 0 ? undefined : { depth, quote };
};
