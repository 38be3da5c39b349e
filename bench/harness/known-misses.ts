import { readFileSync } from 'node:fs';

/** Targets that are not reached yet, as `row: target`, each with the reason. */
export const readKnownMisses = (
  file: URL = new URL('../known-misses.json', import.meta.url),
): Readonly<Record<string, string>> => JSON.parse(readFileSync(file, 'utf8'));
