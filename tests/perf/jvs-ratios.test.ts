import { fileURLToPath } from 'node:url';
import { skipFor } from '@coppice/testkit';
import { describe, expect, it } from 'vitest';
import { readKnownMisses } from '../../bench/harness/known-misses.ts';
import { readResults } from '../../bench/harness/results.ts';
import { isKept, targetText } from '../../bench/harness/target.ts';
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

const unmeasured = targets.filter(({ value }) => value === undefined).length;
const whereAllMeasured = skipFor(
  unmeasured > 0
    ? `${unmeasured} of ${targets.length} targets are not measured: run \`npm run bench:workspaces\` on a quiet machine and commit what it writes`
    : undefined,
);

describe('the committed benchmark of workspaces', () => {
  it('has a finding for every target', whereAllMeasured, () => {
    expect(targets.length).toBeGreaterThan(0);
    expect(unmeasured).toBe(0);
  });

  it('misses no target but the known misses, and those for the reason that is given', () => {
    expect(unmeasured).toBeLessThan(targets.length);
    const missed = targets
      .filter(({ target, value }) => value !== undefined && !isKept(target, value))
      .filter(({ key }) => !/\w+ \w+/.test(knownMisses[key] ?? ''))
      .map(({ key, target, value }) => `${key} is ${value}, to be ${targetText(target)}`);
    expect(missed).toEqual([]);
  });

  it('calls nothing a known miss that is not one', () => {
    const missed = targets
      .filter(({ target, value }) => value !== undefined && !isKept(target, value))
      .map(({ key }) => key);
    expect(missed).toEqual(expect.arrayContaining(Object.keys(knownMisses)));
  });
});
