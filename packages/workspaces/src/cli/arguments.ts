import { CoppiceError } from '@coppice/protocol/errors';

interface OptionSpec {
  /** `--name`, without the dashes. */
  readonly name: string;
  readonly short?: string;
  /** flag: no value. value: one, the last counts. list: one each time, commas separate. words: all words that follow. */
  readonly kind: 'flag' | 'value' | 'list' | 'words';
  readonly help: string;
  /** How the value is called in the help. */
  readonly value?: string;
}

export interface CommandSpec {
  readonly name: string;
  readonly summary: string;
  /** How it is written: `[note]`. */
  readonly usage: string;
  readonly options: readonly OptionSpec[];
  readonly least: number;
  readonly most: number;
}

export const globalOptions: readonly OptionSpec[] = [
  { name: 'json', kind: 'flag', help: 'answer, and errors, as JSON' },
  { name: 'directory', short: 'C', kind: 'value', value: 'DIR', help: 'work as if started in DIR' },
  { name: 'no-color', kind: 'flag', help: 'no colour' },
  { name: 'no-progress', kind: 'flag', help: 'do not count files on the terminal' },
  { name: 'debug', kind: 'flag', help: 'print where an error comes from' },
  { name: 'help', short: 'h', kind: 'flag', help: 'this text' },
];

export class ParsedArguments {
  readonly words: readonly string[];
  readonly #values: ReadonlyMap<string, readonly string[]>;

  constructor(words: readonly string[], values: ReadonlyMap<string, readonly string[]>) {
    this.words = words;
    this.#values = values;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  value(name: string): string | undefined {
    return this.#values.get(name)?.at(-1);
  }

  list(name: string): readonly string[] {
    return this.#values.get(name) ?? [];
  }

  /** For a command with actions: none of its options may be given but these. */
  allowOnly(action: string, ...names: readonly string[]): void {
    const own = [...names, ...globalOptions.map(({ name }) => name)];
    const other = [...this.#values.keys()].find((name) => !own.includes(name));
    if (other === undefined) return;
    throw new CoppiceError('invalid_argument', `\`jvs ${action}\` has no option --${other}`, {
      hint: `See \`jvs ${action.split(' ')[0]} --help\`.`,
    });
  }

  count(name: string): number | undefined {
    const text = this.value(name);
    if (text === undefined) return undefined;
    if (/^\d{1,9}$/.test(text)) return Number(text);
    throw new CoppiceError(
      'invalid_argument',
      `--${name} must be a whole number, not ${JSON.stringify(text)}`,
    );
  }
}

const unknown = (spec: CommandSpec, word: string): CoppiceError =>
  new CoppiceError('invalid_argument', `\`jvs ${spec.name}\` has no option ${word}`, {
    hint: `See \`jvs ${spec.name} --help\`.`,
  });

/** Options may stand anywhere; after `--` everything is a word. */
export const parseArguments = (spec: CommandSpec, argv: readonly string[]): ParsedArguments => {
  const options = [...spec.options, ...globalOptions];
  const words: string[] = [];
  const values = new Map<string, string[]>();
  const rest = [...argv];
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    if (word === '--') {
      words.push(...rest.splice(0));
    } else if (word.startsWith('-') && word !== '-') {
      const [, long, attached] = /^--([^=]+)(?:=([\s\S]*))?$/.exec(word) ?? [];
      const option = options.find(({ name, short }) =>
        long === undefined ? word === `-${short}` : name === long,
      );
      if (!option) throw unknown(spec, word);
      const known = values.get(option.name) ?? [];
      values.set(option.name, known);
      if (option.kind === 'flag') {
        if (attached !== undefined)
          throw new CoppiceError('invalid_argument', `--${option.name} takes no value`);
        continue;
      }
      const first = attached ?? rest.shift();
      if (first === undefined) throw new CoppiceError('invalid_argument', `${word} needs a value`);
      known.push(...(option.kind === 'list' ? first.split(',').filter(Boolean) : [first]));
      while (
        option.kind === 'words' &&
        attached === undefined &&
        rest[0] !== undefined &&
        !rest[0].startsWith('-')
      ) {
        known.push(rest.shift() as string);
      }
    } else words.push(word);
  }
  if (!values.has('help') && (words.length < spec.least || words.length > spec.most)) {
    throw new CoppiceError('invalid_argument', `usage: jvs ${spec.name} ${spec.usage}`, {
      hint: `See \`jvs ${spec.name} --help\`.`,
    });
  }
  return new ParsedArguments(words, values);
};
