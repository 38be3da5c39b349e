import { describe, expect, test } from 'vitest';
import { bestOf, nextBisectStep, planTrials, type ScoredTrial, summarise } from '../src/index.ts';

test('a plan has every variant on every case, interleaved, and is the same again for the same seed', () => {
  const cases = ['a', 'b', 'c', 'd'];
  const plan = planTrials(['base', 'new'], cases, { epochs: 2, seed: 7 });
  expect(plan).toHaveLength(16);
  expect(new Set(plan.map(({ variant, caseId, epoch }) => `${variant} ${caseId} ${epoch}`)).size).toBe(16);
  expect(plan.map(({ n }) => n)).toEqual(Array.from({ length: 16 }, (_none, index) => index + 1));
  for (let at = 0; at < plan.length; at += 2) {
    expect(plan[at]!.caseId).toBe(plan[at + 1]!.caseId);
    expect(plan[at]!.variant).not.toBe(plan[at + 1]!.variant);
  }
  expect(planTrials(['base', 'new'], cases, { epochs: 2, seed: 7 })).toEqual(plan);
  expect(planTrials(['base', 'new'], cases, { epochs: 2, seed: 8 })).not.toEqual(plan);
});

const trial = (
  variant: string,
  caseId: string,
  passed: boolean,
  more: Partial<ScoredTrial> = {},
): ScoredTrial => ({
  variant,
  caseId,
  passed,
  score: null,
  costMicros: 10,
  durationMs: 5,
  ...more,
});

test('a summary pairs by case, counts a case once, and leaves out what only one variant did', () => {
  const trials = [
    ...Array.from({ length: 12 }, (_none, index) => trial('base', `c${index}`, false)),
    ...Array.from({ length: 12 }, (_none, index) => trial('new', `c${index}`, true)),
    trial('new', 'extra', true),
    trial('new', 'c0', true),
  ];
  const [base, better] = summarise(['base', 'new'], trials, 'anytime');
  expect(base).toMatchObject({ n: 12, passed: 0, gate: null });
  expect(better).toMatchObject({ n: 14, passed: 14, gate: { n: 12, effect: 1, verdict: 'better' } });
});

test('the best of n passed most, then scored most, then cost least', () => {
  const names = ['a', 'b', 'c'];
  expect(bestOf(names, [trial('a', 'x', false), trial('b', 'x', true), trial('c', 'x', false)])).toBe('b');
  expect(bestOf(names, [trial('a', 'x', true, { score: 1 }), trial('b', 'x', true, { score: 3 })])).toBe('b');
  expect(
    bestOf(names, [trial('a', 'x', true, { costMicros: 9 }), trial('b', 'x', true, { costMicros: 8 })]),
  ).toBe('b');
  expect(bestOf(names, [trial('a', 'x', false)])).toBeUndefined();
});

describe('a bisection', () => {
  const find = (firstBad: number, count: number) => {
    const known = new Map<number, boolean>();
    for (let looks = 1; looks < 100; looks += 1) {
      const step = nextBisectStep(count, known);
      if (step.kind !== 'test') return { step, looks: looks - 1 };
      known.set(step.index, step.index < firstBad);
    }
    throw new Error('it never ends');
  };
  test.each([1, 2, 37, 99])(
    'finds snapshot %i of 100 as the first bad one in at most 9 looks',
    (firstBad) => {
      const { step, looks } = find(firstBad, 100);
      expect(step).toEqual({ kind: 'found', index: firstBad });
      expect(looks).toBeLessThanOrEqual(9);
    },
  );
  test('says so where the ends are not good and bad', () => {
    expect(find(0, 10).step).toMatchObject({ kind: 'nothing', said: 'the first snapshot is bad already' });
    expect(find(10, 10).step).toMatchObject({ kind: 'nothing', said: 'the last snapshot is still good' });
  });
});
