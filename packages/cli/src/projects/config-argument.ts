import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';

/** JSON, `@file` with JSON in it, or `key=value` with commas between. */
export const parseConfig = (text: string): Record<string, never> => {
  const given = text.startsWith('@') ? readFileSync(text.slice(1), 'utf8') : text;
  if (/^\s*\{/.test(given)) {
    try {
      return JSON.parse(given) as Record<string, never>;
    } catch (cause) {
      throw refused(text, `is no JSON: ${(cause as Error).message}`);
    }
  }
  const pairs = given.split(',').map((pair) => /^\s*([a-z][a-z0-9_]*)=(.*)$/.exec(pair));
  if (pairs.some((pair) => pair === null)) throw refused(text, 'is neither JSON nor key=value');
  return Object.fromEntries(pairs.map((pair) => [pair![1]!, plainValue(pair![2]!)])) as Record<string, never>;
};

const plainValue = (text: string): string | number | boolean =>
  /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text === 'true' || text === 'false' ? text === 'true' : text;

const refused = (text: string, why: string): CoppiceError =>
  new CoppiceError('invalid_argument', `the configuration ${text.slice(0, 80)} ${why}`, {
    hint: `For example: --config '{"vertical":"dentists","location":"NYC"}'`,
  });

/** A document for a call, as JSON in a file or on standard input. */
export const readDocument = (path: string): unknown => {
  const text = readFileSync(path === '-' ? 0 : path, 'utf8');
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CoppiceError('invalid_argument', `${path} is no JSON: ${(cause as Error).message}`, { cause });
  }
};
