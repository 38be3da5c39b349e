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

const unmeasured = targets.filter(({ value }) => value === undefined).length;
const whereAllMeasured = skipFor(
  unmeasured > 0
    ? `${unmeasured} of ${targets.length} targets are not measured: run \`npm run bench:workspaces\` on a quiet machine and commit what it writes`
    : undefined,
);

describe('the committed benchmark of workspaces', () => {
  it('has a finding for every target, and calls none of them unmeasured', whereAllMeasured, () => {
    expect(targets.length).toBeGreaterThan(0);
    expect(Object.values(knownMisses).filter((reason) => reason.startsWith('not measured'))).toEqual([]);
  });

  it('misses no target by more than half, but for the known misses', () => {
    expect(unmeasured).toBeLessThan(targets.length);
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
