import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { newcombe, newcombePaired, wilson } from '../src/statistics/interval.ts';
import {
  canaryEvidence,
  mcnemarExact,
  pairedBootstrap,
  pairsNeeded,
  signEvidence,
} from '../src/statistics/paired.ts';
import { Random } from '../src/statistics/random.ts';
import {
  betaCdf,
  normalTail,
  normalUpper,
  studentTail,
  studentUpper,
} from '../src/statistics/special-functions.ts';
import { mannWhitney, welch } from '../src/statistics/unpaired.ts';

/** What scipy says; scripts/golden-statistics.py computes it again. */
const golden = JSON.parse(
  readFileSync(new URL('./golden/statistics.json', import.meta.url), 'utf8'),
) as Golden;

type Row = readonly number[];
interface Golden {
  readonly [name: string]: readonly Row[];
}
const part = <T>(name: string): T => (golden as unknown as Record<string, T>)[name]!;

const close = (actual: number, expected: number, relative = 1e-11): void => {
  expect(Math.abs(actual - expected), `${actual} for ${expected}`).toBeLessThanOrEqual(
    Math.max(1e-15, Math.abs(expected) * relative),
  );
};

const pairs = (bothPassed: number, onlyFirst: number, onlySecond: number, neitherPassed: number) => ({
  bothPassed,
  onlyFirst,
  onlySecond,
  neitherPassed,
});

describe('statistics agree with scipy:', () => {
  test.each([
    ['the normal tail', 'normalTail', ([z]: Row) => normalTail(z!)],
    ['the normal quantile', 'normalUpper', ([c]: Row) => normalUpper(c!)],
    ["Student's tail", 'studentTail', ([t, df]: Row) => studentTail(t!, df!)],
    ["Student's quantile", 'studentUpper', ([c, df]: Row) => studentUpper(c!, df!)],
    ['the beta distribution', 'betaCdf', ([x, a, b]: Row) => betaCdf(x!, a!, b!)],
    ["McNemar's exact test", 'mcnemar', ([b, c]: Row) => mcnemarExact(pairs(0, b!, c!, 0))],
    ['the evidence of the sign test', 'signEvidence', ([w, l]: Row) => signEvidence(w!, l!)],
    ['the evidence of the canary', 'canaryEvidence', ([k, n, p]: Row) => canaryEvidence(k!, n!, p!)],
    ['the number of cases needed', 'pairsNeeded', ([s, e]: Row) => pairsNeeded(s!, e!)],
  ])('%s', (_what, name, compute) => {
    const rows = golden[name]!;
    expect(rows.length).toBeGreaterThan(2);
    // The quantile of Student's t in scipy before 1.11 is good to nine digits; its tail to all.
    for (const row of rows) close(compute(row), row.at(-1)!, name === 'studentUpper' ? 1e-8 : 1e-11);
  });

  test.each([
    ["Wilson's interval", 'wilson', ([k, n]: Row) => wilson(k!, n!)],
    ["Newcombe's interval", 'newcombe', ([a, m, b, n]: Row) => newcombe([a!, m!], [b!, n!])],
    [
      "Newcombe's interval of pairs",
      'newcombePaired',
      ([a, b, c, d]: Row) => newcombePaired(pairs(a!, b!, c!, d!)),
    ],
  ])('%s', (_what, name, compute) => {
    for (const row of golden[name]!) {
      const { low, high } = compute(row);
      close(low, row.at(-2)!, 1e-10);
      close(high, row.at(-1)!, 1e-10);
    }
  });

  const samples = part<Record<string, number[]>>('samples');
  test("Welch's test", () => {
    const expected = part<Record<string, number>>('welch');
    const found = welch(samples.first!, samples.second!);
    for (const name of ['t', 'df', 'p'] as const) close(found[name], expected[name]!);
    for (const name of ['low', 'high'] as const) close(found[name], expected[name]!, 1e-8);
  });

  test('the test of Mann and Whitney, exact, with ties, and for larger samples', () => {
    const expected = part<Record<string, Row>>('mannWhitney');
    for (const [name, found] of [
      ['large', mannWhitney(samples.first!, samples.second!)],
      ['small', mannWhitney(samples.small!, samples.second!)],
      ['tied', mannWhitney(samples.tied!, samples.tiedToo!)],
    ] as const) {
      close(found.u, expected[name]![0]!);
      close(found.p, expected[name]![1]!);
    }
  });

  test('the paired bootstrap, within the error of resampling, and the same again for the same seed', () => {
    const expected = part<Record<string, number>>('bootstrap');
    const given = samples.pairs as unknown as [number, number][];
    const found = pairedBootstrap(given, { seed: 1 });
    close(found.estimate, expected.estimate!);
    expect(Math.abs(found.low - expected.low!)).toBeLessThan(expected.error! / 10);
    expect(Math.abs(found.high - expected.high!)).toBeLessThan(expected.error! / 10);
    expect(pairedBootstrap(given, { seed: 1 })).toEqual(found);
    expect(pairedBootstrap(given, { seed: 2 })).not.toEqual(found);
  });
});

/** Fair coins, looked at after every throw. */
const evenPairs = (random: Random, looks: number, isOver: (wins: number, losses: number) => boolean) => {
  let wins = 0;
  for (let look = 1; look <= looks; look += 1) {
    wins += random.below(2);
    if (isOver(wins, look - wins)) return true;
  }
  return false;
};

test('looking after every pair calls a winner among equals in less than one of twenty, and a plain test far more often', () => {
  const random = new Random(18);
  const trials = Array.from({ length: 400 }, () =>
    evenPairs(random, 200, (w, l) => signEvidence(w, l) >= 20),
  );
  expect(trials.filter(Boolean).length / trials.length).toBeLessThan(0.05);
  const naive = Array.from({ length: 400 }, () =>
    evenPairs(random, 200, (w, l) => mcnemarExact(pairs(0, w, l, 0)) < 0.05),
  );
  expect(naive.filter(Boolean).length / naive.length).toBeGreaterThan(0.1);
});

test('the canary raises few false alarms and notices half the runs failing within some', () => {
  const random = new Random(5);
  const alarmAt = (rate: number, runs: number): number => {
    let failures = 0;
    for (let run = 1; run <= runs; run += 1) {
      failures += random.below(1000) < rate * 1000 ? 1 : 0;
      if (canaryEvidence(failures, run, 0.1) >= 20) return run;
    }
    return Number.POSITIVE_INFINITY;
  };
  const quiet = Array.from({ length: 300 }, () => alarmAt(0.1, 300));
  expect(quiet.filter(Number.isFinite).length / quiet.length).toBeLessThan(0.06);
  const loud = Array.from({ length: 301 }, () => alarmAt(0.5, 300)).sort((a, b) => a - b);
  expect(loud[150]).toBeLessThan(12);
});
