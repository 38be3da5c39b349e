/** Tokens of one call. Each token is in one field, except that `reasoning` is a part of `output`. */
export interface Usage {
  /** Neither read from a cache nor written to one. */
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite5m: number;
  readonly cacheWrite1h: number;
  readonly output: number;
  readonly reasoning: number;
}

export const noUsage: Usage = {
  input: 0,
  cacheRead: 0,
  cacheWrite5m: 0,
  cacheWrite1h: 0,
  output: 0,
  reasoning: 0,
};

export const inputOf = (usage: Usage): number =>
  usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h;

/** A count that an upstream reports. Anything but a whole number that a call can have is no count. */
export const countOf = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= 1e9 ? value : undefined;

/** A field of an object of which nothing is known. */
export const fieldOf = (value: unknown, ...path: readonly string[]): unknown => {
  let at = value;
  for (const key of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Record<string, unknown>)[key];
  }
  return at;
};

export const defined = (key: keyof Usage, value: number | undefined): Partial<Usage> =>
  value === undefined ? {} : { [key]: value };
