const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export const formatBytes = (bytes: number): string => {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
};

/** `1 change`, `2 changes`. */
export const plural = (count: number, thing: string): string => `${count} ${thing}${count === 1 ? '' : 's'}`;

/** A size that is counted in the background may not be known yet. */
export const formatSize = (bytes: number | null): string => (bytes === null ? '…' : formatBytes(bytes));

const steps = [
  ['d', 86_400],
  ['h', 3600],
  ['m', 60],
] as const;

/** In the largest two units: `2d 3h`, `45s`. */
export const formatDuration = (seconds: number): string => {
  let rest = Math.max(0, Math.round(seconds));
  const parts: string[] = [];
  for (const [unit, size] of steps) {
    if (rest >= size) parts.push(`${Math.floor(rest / size)}${unit}`);
    rest %= size;
  }
  if (rest > 0 || parts.length === 0) parts.push(`${rest}s`);
  return parts.slice(0, 2).join(' ');
};

export const formatAge = (at: string, nowMs: number): string =>
  `${formatDuration((nowMs - Date.parse(at)) / 1000)} ago`;

/** A word for a shell to read back as it is. */
const quoteWord = (word: string): string =>
  /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

export const formatCommand = (argv: readonly string[]): string => argv.map(quoteWord).join(' ');

/** Those of terminals, and those that turn the direction of what follows. */
const controlCharacters = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const escaped = (found: string): string => {
  const code = found.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`;
};

/** Text from inside a sandbox must not move the cursor or change colours of the terminal that lists it. */
export const printable = (text: string): string => text.replace(controlCharacters, escaped);

/** A name in a list with one to a line: one that holds a line end must not look like two. */
export const printableName = (name: string): string => printable(name).replaceAll('\n', '\\n');
