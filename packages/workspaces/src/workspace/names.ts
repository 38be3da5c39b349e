import { CoppiceError } from '@coppice/protocol/errors';

const name = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const tag = /^[^\s,\p{C}][^\s,\p{C}]{0,127}$/u;
const noteBytes = 64 * 1024;

export const isName = (value: unknown): value is string =>
  typeof value === 'string' && name.test(value) && !value.includes('..');

export const checkName = (what: string, value: string): string => {
  if (isName(value)) return value;
  throw new CoppiceError('invalid_argument', `not a name for a ${what}: ${JSON.stringify(value)}`, {
    hint: 'Use letters, digits, `_`, `-` and single dots, starting with a letter, a digit or `_`; at most 128 characters.',
  });
};

export const checkTag = (value: string): string => {
  if (tag.test(value) && !value.startsWith('-') && value !== 'HEAD') return value;
  throw new CoppiceError('invalid_argument', `not a tag: ${JSON.stringify(value)}`, {
    hint: 'A tag has no spaces, commas or control characters, at most 128 characters, and is not HEAD.',
  });
};

export const checkNote = (value: string): string => {
  if (Buffer.byteLength(value) <= noteBytes) return value;
  throw new CoppiceError('too_large', `the note is longer than ${noteBytes} bytes`, {
    hint: 'Put the long text into a file of the workspace, and a short note on the snapshot.',
  });
};
