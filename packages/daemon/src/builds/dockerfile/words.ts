import { CoppiceError } from '@coppice/protocol';

type Variables = Readonly<Record<string, string | undefined>>;

/** What variables may make of one text: each may stand for others, so a few lines can ask for more than any memory holds. */
const mostCharacters = 1_048_576;
/** How deep one default may stand in another. */
const deepest = 32;

const checked = (result: string): string => {
  if (result.length <= mostCharacters) return result;
  throw new CoppiceError('too_large', `variables make more than ${mostCharacters} characters of one text`, {
    hint: 'Put it into a file of the build context.',
  });
};

/** Splits at white space that is not quoted; quotes and escapes stay. */
export function rawWords(text: string, escapeWith: string): string[] {
  const words: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]!;
    if (quote === '' && /\s/.test(character)) {
      if (word !== '') words.push(word);
      word = '';
      continue;
    }
    word += character;
    if (character === escapeWith && quote !== "'" && at + 1 < text.length) {
      word += text[at + 1];
      at += 1;
    } else if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (character === quote) quote = '';
  }
  if (word !== '') words.push(word);
  return words;
}

/** Removes quotes and escapes and puts in variables, as Docker does: not in single quotes, and without splitting again. */
export function expand(text: string, variables: Variables, escapeWith: string): string {
  let result = '';
  let quote = '';
  for (let at = 0; at < text.length; ) {
    const character = text[at]!;
    if (quote === "'") {
      if (character === "'") quote = '';
      else result += character;
      at += 1;
    } else if (character === escapeWith && at + 1 < text.length) {
      // In double quotes a backslash before anything else stands for itself.
      if (quote === '"' && !['"', '$', escapeWith].includes(text[at + 1]!)) result += character;
      result += text[at + 1];
      at += 2;
    } else if (character === '"' || (character === "'" && quote === '')) {
      quote = quote === character ? '' : character;
      at += 1;
    } else if (character === '$') {
      const { value, length } = readVariable(text.slice(at), variables, escapeWith);
      result = checked(result + value);
      at += length;
    } else {
      result += character;
      at += 1;
    }
  }
  return result;
}

/** Puts in variables and leaves quotes as they are, as in the text of a heredoc. */
export function expandText(text: string, variables: Variables, escapeWith: string): string {
  let result = '';
  for (let at = 0; at < text.length; ) {
    if (text[at] === escapeWith && (text[at + 1] === '$' || text[at + 1] === escapeWith)) {
      result += text[at + 1];
      at += 2;
    } else if (text[at] === '$') {
      const { value, length } = readVariable(text.slice(at), variables, escapeWith);
      result = checked(result + value);
      at += length;
    } else {
      result += text[at];
      at += 1;
    }
  }
  return result;
}

function readVariable(
  text: string,
  variables: Variables,
  escapeWith: string,
): { value: string; length: number } {
  const plain = /^\$([A-Za-z_][A-Za-z0-9_]*)/.exec(text);
  if (plain !== null) return { value: variables[plain[1]!] ?? '', length: plain[0].length };
  if (!text.startsWith('${')) return { value: '$', length: 1 };
  const end = closingBrace(text);
  const inner = text.slice(2, end);
  const [, name = '', operator = '', word = ''] =
    /^([A-Za-z_][A-Za-z0-9_]*)(:?[-+?])?(.*)$/s.exec(inner) ?? [];
  const length = end + 1;
  if (name === '' || (operator === '' && word !== '') || operator.endsWith('?'))
    throw new CoppiceError('unsupported', `\${${inner.slice(0, 60)}} is not supported in a Dockerfile here`, {
      hint: 'Use $NAME, a default with `:-` in braces, or another value with `:+`.',
    });
  const found = variables[name];
  const isSet = operator.startsWith(':') ? found !== undefined && found !== '' : found !== undefined;
  if (operator.endsWith('+')) return { value: isSet ? expand(word, variables, escapeWith) : '', length };
  if (operator.endsWith('-')) return { value: isSet ? found! : expand(word, variables, escapeWith), length };
  return { value: found ?? '', length };
}

function closingBrace(text: string): number {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text.startsWith('${', at)) {
      depth += 1;
      if (depth > deepest)
        throw new CoppiceError(
          'unsupported',
          `more than ${deepest} variables stand in each other in a Dockerfile`,
        );
    } else if (text[at] === '}') {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  throw new CoppiceError('invalid_argument', `${text.slice(0, 60)} has no closing brace`);
}

/** Name and value of each, as in `ENV A=1 B="2 3"`, or of one in the old form `ENV A rest of the line`. */
export function readPairs(
  text: string,
  variables: Variables,
  escapeWith: string,
): { name: string; value: string }[] {
  const words = rawWords(text, escapeWith);
  if (!words[0]?.includes('=')) {
    const [, name = '', rest = ''] = /^(\S+)\s*(.*)$/s.exec(text) ?? [];
    return [{ name: expand(name, variables, escapeWith), value: expand(rest, variables, escapeWith) }];
  }
  return words.map((word) => {
    const equals = word.indexOf('=');
    if (equals < 1) throw new CoppiceError('invalid_argument', `${word.slice(0, 60)} is not NAME=VALUE`);
    return {
      name: expand(word.slice(0, equals), variables, escapeWith),
      value: expand(word.slice(equals + 1), variables, escapeWith),
    };
  });
}
