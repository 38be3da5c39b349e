import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestTotals } from './test-totals.ts';

/** A row of a table, such as those of SPECIFICATION.md and of the threat model: a promise, and the test that holds it. */
export interface Promised {
  /** Its number, or for a row of the threat model the file and line: `docs/threat-model.md:21`. */
  readonly number: string;
  /** Undefined where the row names no test in the form `file` › title. */
  readonly heldBy?: { readonly file: string; readonly title: string };
}

export interface Judgement {
  readonly held: readonly string[];
  /** The test could not run on this machine: `C21 (the reason)`. */
  readonly notHeldHere: readonly string[];
  /** The test failed: it counts as failed already. */
  readonly failed: readonly string[];
  /** No test of that title ran. */
  readonly unheld: readonly string[];
}

/** `file` › title, as the last cell of a row. */
const heldByOf = (row: string): Promised['heldBy'] => {
  const [, file, title] = /^`([^`]+)` › (.+) \|$/.exec(row.split(' | ').at(-1) ?? '') ?? [];
  return file === undefined || title === undefined ? undefined : { file, title };
};

const linesOf = (repository: string, file: string): readonly string[] =>
  readFileSync(join(repository, file), 'utf8').split('\n');

export const readPromises = (repository: string, document = 'SPECIFICATION.md'): readonly Promised[] =>
  linesOf(repository, document).flatMap((line) => {
    const number = /^\| ([A-Z]+\d+) \|/.exec(line)?.[1];
    if (number === undefined) return [];
    const heldBy = heldByOf(line);
    return [heldBy === undefined ? { number } : { number, heldBy }];
  });

const threatModel = 'docs/threat-model.md';

/** Every row of its tables, except those that say what is not held and so can name no test. */
export const readThreats = (repository: string): readonly Promised[] =>
  linesOf(repository, threatModel).flatMap((line, index) => {
    if (!line.startsWith('| ') || line.endsWith('| test |')) return [];
    const heldBy = heldByOf(line);
    if (heldBy === undefined && line.includes('**Not held**')) return [];
    return [{ number: `${threatModel}:${index + 1}`, ...(heldBy === undefined ? {} : { heldBy }) }];
  });

/** A title as it stands in the source: what vitest fills in, as in `%s` and `$name`, may be anything. */
const patternOf = (title: string): RegExp => {
  const fixed = title.split(/%[sdifjoOc#$]|\$\{[^}]*\}|\$[A-Za-z][\w.]*/);
  return new RegExp(
    `(^| )${fixed.map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*')}$`,
  );
};

/**
 * Tests are named `file > suites > title`. A suite that several files run, as one for all implementations of a port,
 * is named by the file that it stands in; then a test of any file holds the promise.
 */
const matcherOf = ({ file, title }: { file: string; title: string }): ((test: string) => boolean) => {
  const pattern = patternOf(title);
  const prefix = file.endsWith('.test.ts') ? `${file} > ` : '';
  return (test) => test.startsWith(prefix) && pattern.test(test.slice(prefix.length));
};

/** What a whole run of the tests says about the promises: only a test that passed in it holds one. */
export const judge = (promises: readonly Promised[], totals: TestTotals): Judgement => {
  const held: string[] = [];
  const notHeldHere: string[] = [];
  const failed: string[] = [];
  const unheld: string[] = [];
  for (const { number, heldBy } of promises) {
    if (heldBy === undefined) {
      unheld.push(`${number}: the row names no test`);
      continue;
    }
    const isNamed = matcherOf(heldBy);
    const name = `${heldBy.file} › ${heldBy.title}`;
    const skipped = totals.skipped.find(({ test, reason }) => reason !== undefined && isNamed(test));
    if (totals.failed.some(isNamed)) failed.push(number);
    else if (totals.passed.some(isNamed)) held.push(number);
    else if (skipped !== undefined) notHeldHere.push(`${number} (${skipped.reason})`);
    else unheld.push(`${number}: did not run: ${name}`);
  }
  return { held, notHeldHere, failed, unheld };
};
