import { z } from 'zod';

/** A line of an agent as an object; undefined where it is none. Lines come from a sandbox: nothing about them can be relied on. */
export function parseLine(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/** What an agent gave, for people; cut, and whatever its depth. */
export function shown(value: unknown, longest = 1_000_000): string {
  if (typeof value === 'string') return value.slice(0, longest);
  try {
    return (JSON.stringify(value) ?? '').slice(0, longest);
  } catch {
    return '(too deep to be shown)';
  }
}

/** A text of an agent, cut at what an event may hold. */
export const cut = (longest: number) =>
  z
    .string()
    .catch('')
    .transform((text) => text.slice(0, longest));

/** An array of which only so many are looked at, and of these only those that are as they should be. */
export const someOf = <T extends z.ZodType>(item: T, most: number) =>
  z
    .array(z.unknown())
    .catch([])
    .transform((values) =>
      values.slice(0, most).flatMap((value) => {
        const parsed = item.safeParse(value);
        return parsed.success ? [parsed.data as z.output<T>] : [];
      }),
    );
