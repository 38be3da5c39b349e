/** Letters in one token of common text; text that no model has seen often, such as base64, changes its class more often. */
const lettersPerToken = 5;
const digitsPerToken = 3;
const marksPerToken = 2;

type Kind = 'lower' | 'upper' | 'digit' | 'space' | 'mark' | 'other';

const kindOf = (code: number): Kind => {
  if (code > 126) return 'other';
  if (code >= 97 && code <= 122) return 'lower';
  if (code >= 65 && code <= 90) return 'upper';
  if (code >= 48 && code <= 57) return 'digit';
  return code <= 32 ? 'space' : 'mark';
};

const roomOf: Readonly<Record<Kind, number>> = {
  lower: lettersPerToken,
  upper: lettersPerToken,
  digit: digitsPerToken,
  mark: marksPerToken,
  space: Number.POSITIVE_INFINITY,
  other: 1,
};

/** A capital starts a word; several of them before small letters are no word. */
const isCapital = (text: string, index: number): boolean =>
  index === 0 || kindOf(text.charCodeAt(index - 1)) !== 'upper';

/** Whether the character belongs to the same run as the one before it. */
const continues = (text: string, index: number): boolean => {
  if (index === 0 || index >= text.length) return false;
  const [left, right] = [kindOf(text.charCodeAt(index - 1)), kindOf(text.charCodeAt(index))];
  return left === right || (left === 'upper' && right === 'lower' && isCapital(text, index - 1));
};

/**
 * How far a text goes within a number of tokens, from its start or back from its end: an index into it. No model's own
 * vocabulary is needed. For prose, code and logs it is off by a third at most, and for most of them it says too much.
 */
const walk = (text: string, tokens: number, fromEnd: boolean): { index: number; tokens: number } => {
  let spent = 0;
  let room = 0;
  for (let done = 0; done < text.length; done += 1) {
    const index = fromEnd ? text.length - 1 - done : done;
    const kind = kindOf(text.charCodeAt(index));
    const goesOn = done > 0 && continues(text, fromEnd ? index + 1 : index);
    if (goesOn && room > 0) room -= 1;
    else {
      // One space before a word is part of the word's token.
      spent += kind === 'space' && !goesOn && text.charCodeAt(index) === 32 ? 0.25 : 1;
      room = roomOf[kind] - 1;
    }
    if (spent > tokens) return { index: fromEnd ? index + 1 : index, tokens: spent };
  }
  return { index: fromEnd ? 0 : text.length, tokens: spent };
};

export const estimateTokens = (text: string): number =>
  Math.ceil(walk(text, Number.POSITIVE_INFINITY, false).tokens);

/** The longest start of a text within that many tokens; characters stay whole. */
export const startWithin = (text: string, tokens: number): string => {
  const { index } = walk(text, tokens, false);
  return text.slice(0, isSplit(text, index) ? index - 1 : index);
};

/** The longest end of a text within that many tokens; characters stay whole. */
export const endWithin = (text: string, tokens: number): string => {
  const { index } = walk(text, tokens, true);
  return text.slice(isSplit(text, index) ? index + 1 : index);
};

/** Whether the index is between the two halves of one character. */
const isSplit = (text: string, index: number): boolean =>
  index > 0 && index < text.length && (text.charCodeAt(index) & 0xfc00) === 0xdc00;
