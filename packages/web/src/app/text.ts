/**
 * Text from inside sandboxes as a person should see it: what would move the cursor, or turn the direction of the text
 * around it, is written out.
 */
export const plain = (text: string): string =>
  text.replace(
    /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

const units = ['B', 'kB', 'MB', 'GB', 'TB'];
export const bytes = (count: number | null | undefined): string => {
  if (count === null || count === undefined) return '–';
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
};

export const age = (at: string | number, nowMs: number): string => {
  const s = Math.max(0, Math.round((nowMs - new Date(at).getTime()) / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
};

export const exact = (at: string | number): string => new Date(at).toLocaleString();

export const clock = (at: string): string => new Date(at).toLocaleTimeString([], { hour12: false });

export const dollars = (micros: number): string => {
  const value = micros / 1_000_000;
  return `$${value.toFixed(value !== 0 && value < 0.1 ? 4 : 2)}`;
};

export const count = (n: number, one: string, many = `${one}s`): string =>
  `${n.toLocaleString('en')} ${n === 1 ? one : many}`;

/** A word of a command line. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

/** The fields of an object as a program writes them; empty where there are none. */
export const json = (value: object): string => {
  const fields = Object.entries(value).map(([key, field]) => `${key}: ${JSON.stringify(field)}`);
  return fields.length === 0 ? '' : `{ ${fields.join(', ')} }`;
};
