import type { Interval, Pairs } from './interval.ts';
import { Random } from './random.ts';
import { betaCdf, logBeta, normalUpper } from './special-functions.ts';

/** McNemar's exact test, two-sided: how often chance alone would split the cases that differ so unevenly. */
export function mcnemarExact({ onlyFirst, onlySecond }: Pairs): number {
  const n = onlyFirst + onlySecond;
  if (n === 0) return 1;
  const fewer = Math.min(onlyFirst, onlySecond);
  // The chance of at most `fewer` heads in n throws, by the incomplete beta function.
  return Math.min(1, 2 * (1 - betaCdf(0.5, fewer + 1, n - fewer)));
}

/**
 * The evidence against "both are equal" of a paired sign test. It may be looked at after every pair: the chance that it
 * ever reaches 1/alpha while they are equal is at most alpha.
 */
export const signEvidence = (wins: number, losses: number): number =>
  Math.exp(logBeta(wins + 1, losses + 1) + (wins + losses) * Math.LN2);

/**
 * The evidence that failures come more often than `baseline`, which may be looked at after every run too: a mixture over
 * every rate above the baseline.
 */
export function canaryEvidence(failures: number, runs: number, baseline: number): number {
  const passes = runs - failures;
  const above = 1 - betaCdf(baseline, failures + 1, passes + 1);
  if (above <= 0) return 0;
  return Math.exp(
    logBeta(failures + 1, passes + 1) +
      Math.log(above) -
      failures * Math.log(baseline) -
      (passes + 1) * Math.log1p(-baseline),
  );
}

/** The mean difference, second minus first, of numbers of the same cases, with an interval by resampling cases. */
export function pairedBootstrap(
  pairs: readonly (readonly [number, number])[],
  { seed, resamples = 10_000 }: { readonly seed: number; readonly resamples?: number },
): Interval {
  const differences = pairs.map(([first, second]) => second - first);
  const estimate = mean(differences);
  if (differences.length < 2)
    return { estimate, low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY };
  const random = new Random(seed);
  const means = Float64Array.from({ length: resamples }, () => {
    let sum = 0;
    for (let index = 0; index < differences.length; index += 1)
      sum += differences[random.below(differences.length)]!;
    return sum / differences.length;
  }).sort();
  return { estimate, low: quantile(means, 0.025), high: quantile(means, 0.975) };
}

/**
 * How many cases McNemar's test needs (alpha 5 %, power 80 %) where that share of the cases differs and one variant is
 * better by `effect` (Connor 1987).
 */
export function pairsNeeded(differing: number, effect: number, alpha = 0.05, power = 0.8): number {
  const size = Math.abs(effect);
  if (size === 0) return Number.POSITIVE_INFINITY;
  const share = Math.min(1, Math.max(differing, size));
  const [za, zb] = [normalUpper(alpha / 2), normalUpper(1 - power)];
  return Math.ceil((za * Math.sqrt(share) + zb * Math.sqrt(share - size * size)) ** 2 / (size * size));
}

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

function quantile(sorted: Float64Array, share: number): number {
  const at = (sorted.length - 1) * share;
  const below = Math.floor(at);
  const rest = at - below;
  return sorted[below]! * (1 - rest) + sorted[Math.min(below + 1, sorted.length - 1)]! * rest;
}
