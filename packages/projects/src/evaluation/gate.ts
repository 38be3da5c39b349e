import type { GateResult } from '@coppice/protocol';
import { newcombe, newcombePaired, type Pairs } from '../statistics/interval.ts';
import { mcnemarExact, pairsNeeded, signEvidence } from '../statistics/paired.ts';
import { mannWhitney, welch } from '../statistics/unpaired.ts';

/** Evidence that decides at a risk of one in twenty, whenever it is looked at. */
export const decidingEvidence = 20;
/** Fewer cases than this decide nothing. */
const fewestCases = 5;

/**
 * A variant against the baseline on the same cases. With `anytime` the evidence decides, which may be looked at after every
 * case; otherwise McNemar's test, which holds for one look at the end.
 */
export function passGate(pairs: Pairs, rule: 'anytime' | 'fixed'): GateResult {
  const { bothPassed, onlyFirst, onlySecond, neitherPassed } = pairs;
  const n = bothPassed + onlyFirst + onlySecond + neitherPassed;
  const [p, evidence] = [mcnemarExact(pairs), signEvidence(onlyFirst, onlySecond)];
  const interval = n === 0 ? undefined : newcombePaired(pairs);
  const decided = n >= fewestCases && (rule === 'anytime' ? evidence >= decidingEvidence : p < 0.05);
  const verdict = !decided ? 'inconclusive' : onlyFirst > onlySecond ? 'better' : 'worse';
  const effect = n === 0 ? 0 : (onlyFirst - onlySecond) / n;
  const needed = decided ? null : moreNeeded(n, (onlyFirst + onlySecond) / Math.max(1, n), effect);
  return {
    metric: 'passed',
    method: rule === 'anytime' ? 'paired sign test, valid at any time' : "McNemar's exact test",
    n,
    effect,
    low: interval?.low ?? null,
    high: interval?.high ?? null,
    p,
    evidence,
    verdict,
    needs_more: needed,
    said: sayGate(verdict, effect, needed),
  };
}

/** Where nothing is seen yet, as many as it takes to see a difference of a fifth of the cases. */
function moreNeeded(n: number, differing: number, effect: number): number {
  const assumed = Math.abs(effect) < 0.05 ? 0.2 : effect;
  return Math.max(1, fewestCases - n, pairsNeeded(Math.max(differing, 0.2), assumed) - n);
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

function sayGate(verdict: GateResult['verdict'], effect: number, needed: number | null): string {
  if (verdict === 'inconclusive') return `not enough data, about ${needed ?? 'some'} more cases`;
  return `${verdict}: ${effect > 0 ? '+' : ''}${percent(effect)} of the cases pass`;
}

/** Shares of different runs: positive is better for the second. */
export function shareGate(
  metric: string,
  first: readonly [number, number],
  second: readonly [number, number],
): GateResult {
  const n = Math.min(first[1], second[1]);
  const interval = n === 0 ? undefined : newcombe(second, first);
  const decided = interval !== undefined && n >= fewestCases && (interval.low > 0 || interval.high < 0);
  const effect = interval?.estimate ?? 0;
  const verdict = !decided ? 'inconclusive' : effect > 0 ? 'better' : 'worse';
  const needed = decided ? null : moreNeeded(n, 0.2, effect);
  return {
    metric,
    method: "Newcombe's interval",
    n,
    effect,
    low: interval?.low ?? null,
    high: interval?.high ?? null,
    p: null,
    evidence: null,
    verdict,
    needs_more: needed,
    said: sayGate(verdict, effect, needed),
  };
}

/** Numbers of different runs, larger is better: Welch's test of the means, which the ranks must not contradict. */
export function meanGate(metric: string, first: readonly number[], second: readonly number[]): GateResult {
  const n = Math.min(first.length, second.length);
  const empty = { metric, method: "Welch's test, and Mann and Whitney's", n, evidence: null };
  const scatter = new Set([...first, ...second]).size > 1;
  if (n < 2 || !scatter)
    return {
      ...empty,
      effect: n === 0 ? 0 : average(second) - average(first),
      low: null,
      high: null,
      p: null,
      verdict: 'inconclusive',
      needs_more: Math.max(1, fewestCases - n),
      said: `not enough data, about ${Math.max(1, fewestCases - n)} more runs`,
    };
  const found = welch(second, first);
  const known = Number.isFinite(found.t);
  // Two constants that differ: there is no scatter to hold the difference against.
  const p = known ? Math.max(found.p, mannWhitney(second, first).p) : mannWhitney(second, first).p;
  const verdict = n >= fewestCases && p < 0.05 ? (found.estimate > 0 ? 'better' : 'worse') : 'inconclusive';
  const needed = verdict === 'inconclusive' ? Math.max(1, fewestCases - n, n) : null;
  return {
    ...empty,
    effect: found.estimate,
    low: known ? found.low : null,
    high: known ? found.high : null,
    p,
    verdict,
    needs_more: needed,
    said:
      verdict === 'inconclusive'
        ? `not enough data, about ${needed} more runs`
        : `${verdict}: ${found.estimate > 0 ? '+' : ''}${found.estimate.toFixed(4)} on average`,
  };
}

const average = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;
