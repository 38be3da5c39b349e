import { skipFor } from '@coppice/testkit';
import { describe, expect, it } from 'vitest';
import { readKnownMisses } from '../../bench/harness/known-misses.ts';
import { readResults } from '../../bench/harness/results.ts';
import { isLost, targetText } from '../../bench/harness/target.ts';
import { rows } from '../../bench/rows/rows.ts';

/** Nothing is timed here: the numbers are those of the last `npm run bench` that somebody committed. */
const results = readResults();
const knownMisses = readKnownMisses();

const targets = rows.flatMap((row) =>
  Object.entries(row.targets).map(([against, target]) => {
    const measured = results?.rows.find(({ name }) => name === row.name);
    const value = measured?.results.find((result) => result.against === against)?.value;
    return { key: `${row.name}: ${against}`, target, value, reason: measured?.not_measured ?? null };
  }),
);

const whereMeasured = skipFor(
  results === undefined
    ? 'there is no bench/results.json yet; commit one from `npm run bench` on a quiet machine'
    : undefined,
);

describe('the committed benchmark', () => {
  it('has a finding, or a reason why there is none, for every target', whereMeasured, () => {
    expect(targets.filter(({ value, reason }) => value === undefined && reason === null)).toEqual([]);
  });

  it('misses no target by more than half, but for the known misses', whereMeasured, () => {
    const lost = targets
      .filter(({ key }) => knownMisses[key] === undefined)
      .filter(({ target, value }) => value !== undefined && isLost(target, value))
      .map(({ key, target, value }) => `${key} is ${value}, to be ${targetText(target)}`);
    expect(lost).toEqual([]);
  });

  it('knows misses only of targets that exist, each with a reason', () => {
    const keys = targets.map(({ key }) => key);
    for (const [key, reason] of Object.entries(knownMisses)) {
      expect(keys).toContain(key);
      expect(reason).toMatch(/\w+ \w+/);
    }
  });
});
