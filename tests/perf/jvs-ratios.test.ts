import { fileURLToPath } from 'node:url';
import { skipFor } from '@coppice/testkit';
import { describe, expect, it } from 'vitest';
import { readKnownMisses } from '../../bench/harness/known-misses.ts';
import { readResults } from '../../bench/harness/results.ts';
import { isLost, targetText } from '../../bench/harness/target.ts';
import { jvsRows } from '../../bench/jvs/targets.ts';

/** Nothing is timed here: the numbers are those of the last `npm run bench:workspaces` that somebody committed. */
const results = readResults(fileURLToPath(new URL('../../bench/jvs/results.json', import.meta.url)));
const knownMisses = readKnownMisses(new URL('../../bench/jvs/known-misses.json', import.meta.url));

const targets = jvsRows.flatMap((row) =>
  Object.entries(row.targets).map(([against, target]) => ({
    key: `${row.name}: ${against}`,
    target,
    value: results?.rows
      .find(({ name }) => name === row.name)
      ?.results.find((result) => result.against === against)?.value,
  })),
);

const whereMeasured = skipFor(
  results === undefined
    ? 'there is no bench/jvs/results.json yet; commit one from `npm run bench:workspaces` on a quiet machine'
    : undefined,
);

describe('the committed benchmark of workspaces', () => {
  it(
    'has a finding for every target, but for those that are known not to be measured yet',
    whereMeasured,
    () => {
      const missing = targets.filter(({ value }) => value === undefined).map(({ key }) => key);
      expect(missing.filter((key) => !knownMisses[key]?.startsWith('not measured'))).toEqual([]);
      const measured = targets.filter(({ value }) => value !== undefined).map(({ key }) => key);
      expect(measured.filter((key) => knownMisses[key]?.startsWith('not measured'))).toEqual([]);
    },
  );

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
